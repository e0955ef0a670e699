// Search runs in a worker, which browsers refuse to pages that are opened as files. There a hidden frame takes its place.
// (The site's theme would fetch such a script from elsewhere; the file's name makes it take this one.)
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      const ready = new Promise(done => (this.ready = done));
      this.loaded = ready;
      addEventListener("message", event => {
        if (event.source !== this.frame.contentWindow) return;
        const message = new MessageEvent("message", { data: event.data });
        this.dispatchEvent(message);
        this.onmessage?.(message);
      });
      document.body.appendChild(this.frame);
      const inside = this.frame.contentWindow;
      inside.postMessage = data => parent.postMessage(data, "*");
      const script = this.frame.contentDocument.createElement("script");
      script.onload = () => this.ready();
      script.src = url;
      this.frame.contentDocument.body.appendChild(script);
    }
    postMessage(data) {
      this.loaded.then(() => this.frame.contentWindow.dispatchEvent(new MessageEvent("message", { data })));
    }
    terminate() {
      this.frame.remove();
    }
  };
}
