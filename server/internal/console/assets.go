package console

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"net/http"
	"path"
	"strings"
)

//go:embed assets
var assetFiles embed.FS

// An asset is a file that pages refer to, by a name with a hash of its content.
type asset struct {
	name, kind string
	content    []byte
}

var (
	styleSheet = readAsset("console.css", "text/css; charset=utf-8")
	script     = readAsset("console.js", "text/javascript; charset=utf-8")
	icon       = readAsset("icon.svg", "image/svg+xml")
)

func readAsset(name, kind string) asset {
	content, err := assetFiles.ReadFile("assets/" + name)
	if err != nil {
		panic(err) // the file is part of the binary
	}
	sum := sha256.Sum256(content)
	extension := path.Ext(name)
	return asset{strings.TrimSuffix(name, extension) + "-" + hex.EncodeToString(sum[:6]) + extension, kind, content}
}

// serveAsset answers a request for an asset, and reports whether it was one.
func serveAsset(w http.ResponseWriter, r *http.Request, name string) bool {
	for _, a := range []asset{styleSheet, script, icon} {
		if a.name != name || r.Method != http.MethodGet && r.Method != http.MethodHead {
			continue
		}
		w.Header().Set("Content-Type", a.kind)
		w.Header().Set("Cache-Control", "public, max-age=31536000, immutable")
		_, _ = w.Write(a.content) // the browser may have gone away
		return true
	}
	return false
}
