"""Networks as ONNX files: a graph that is read and checked, translated to steps, and written from them."""
