// A browser starts no worker from a file, so a page that is opened from a folder searches in a hidden frame instead.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(address) {
      super();
      const frame = Object.assign(document.createElement("iframe"), {hidden: true});
      document.body.append(frame);
      const inside = frame.contentWindow;
      inside.postMessage = data => this.dispatchEvent(new MessageEvent("message", {data}));
      this.ready = new Promise(resolve => {
        const script = Object.assign(inside.document.createElement("script"), {src: address, onload: resolve});
        inside.document.body.append(script);
      });
      this.postMessage = data => this.ready.then(() => inside.dispatchEvent(new inside.MessageEvent("message", {data})));
    }
  };
}
