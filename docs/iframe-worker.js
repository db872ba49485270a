// Browsers start no worker for a page that is opened from a disk. There the search's worker runs in a hidden frame.
if (location.protocol === "file:")
  window.Worker = class {
    constructor(url) {
      this.frame = document.createElement("iframe")
      this.frame.hidden = true
      document.documentElement.append(this.frame)
      const inside = this.frame.contentWindow
      inside.postMessage = (data) => setTimeout(() => this.onmessage?.({ data: structuredClone(data) }))
      const script = inside.document.createElement("script")
      script.src = url
      this.loaded = new Promise((resolve) => (script.onload = resolve))
      inside.document.body.append(script)
    }
    postMessage(data) {
      const copy = structuredClone(data)
      this.loaded.then(() => this.frame.contentWindow?.onmessage({ data: copy }))
    }
    terminate() {
      this.frame.remove()
    }
  }
