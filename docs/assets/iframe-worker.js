// A page that was opened from the disk may start no worker, and search is one. There, a frame stands in for it.
// Material's offline plugin would fetch such a script from a CDN; the site must not ask anybody for anything.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super()
      this.frame = document.createElement("iframe")
      this.frame.hidden = true
      document.body.append(this.frame)
      const inner = this.frame.contentDocument
      inner.open()
      inner.write("<!doctype html><title>search</title><body>")
      inner.close()
      this.frame.contentWindow.postMessage = data => this.dispatchEvent(new MessageEvent("message", { data }))
      const script = inner.createElement("script")
      script.src = url
      this.ready = new Promise(done => script.addEventListener("load", done))
      inner.body.append(script)
    }
    postMessage(data) {
      this.ready.then(() => this.frame.contentWindow.dispatchEvent(new MessageEvent("message", { data })))
    }
    terminate() {
      this.frame.remove()
    }
  }
}
