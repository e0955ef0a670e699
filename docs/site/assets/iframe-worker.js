// Search runs in a worker, which browsers refuse to pages that are opened as files: there a hidden frame takes its place.
// (The site's theme would fetch such a script from elsewhere; the name of this file makes it take this one.)
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      document.body.appendChild(this.frame);
      this.frame.contentWindow.postMessage = data => this.deliver(this, data);
      this.loaded = new Promise(done => {
        const script = this.frame.contentDocument.createElement("script");
        script.onload = done;
        script.src = url;
        this.frame.contentDocument.body.appendChild(script);
      });
    }
    deliver(to, data) {
      const message = new MessageEvent("message", { data: structuredClone(data) });
      setTimeout(() => {
        to.dispatchEvent(message);
        if (to === this) this.onmessage?.(message);
      });
    }
    postMessage(data) {
      this.loaded.then(() => this.deliver(this.frame.contentWindow, data));
    }
    terminate() {
      this.frame.remove();
    }
  };
}
