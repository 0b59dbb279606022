// SPDX-License-Identifier: Apache-2.0
// Pages of file:// may not start workers, which the search is. Here the worker's script runs in a hidden frame instead.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      this.waiting = [];
      const frame = document.createElement("iframe");
      frame.hidden = true;
      frame.srcdoc = "<!doctype html><title>search</title>";
      frame.onload = () => {
        const inside = frame.contentWindow;
        // What the script posts, it posts to whoever made the worker.
        inside.postMessage = (data) => {
          const event = new MessageEvent("message", { data });
          this.dispatchEvent(event);
          this.onmessage?.(event);
        };
        inside.importScripts = (...urls) =>
          urls.reduce((done, from) => done.then(() => this.load(inside, new URL(from, url))), Promise.resolve());
        this.load(inside, url).then(() => {
          this.inside = inside;
          this.waiting.forEach((data) => this.postMessage(data));
        });
      };
      document.body ? document.body.append(frame) : document.documentElement.append(frame);
      this.frame = frame;
    }
    load(inside, url) {
      return new Promise((done, failed) => {
        const script = inside.document.createElement("script");
        script.onload = done;
        script.onerror = failed;
        script.src = url;
        inside.document.body.append(script);
      });
    }
    postMessage(data) {
      if (!this.inside) this.waiting.push(data);
      else this.inside.dispatchEvent(new MessageEvent("message", { data }));
    }
    terminate() {
      this.frame.remove();
    }
  };
}
