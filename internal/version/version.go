// Package version tells which version of Mailbox a program was built from.
package version

import (
	"runtime"
	"runtime/debug"
)

// release is set when a release is built:
//
//	go build -ldflags "-X github.com/mailboxmq/mailbox/internal/version.release=v1.2.3" ./cmd/...
var release string

// Info is what a build knows of itself.
type Info struct {
	// Version is that of the release, else that of the module, with the commit in it
	// where the build knew the repository, else "(devel)".
	Version string `json:"version"`
	// Commit is the revision in the repository; empty if the build did not know it.
	Commit string `json:"commit,omitempty"`
	Go     string `json:"go"`
	System string `json:"system"`
}

// Read returns what the running program knows of itself.
func Read() Info {
	info, _ := debug.ReadBuildInfo() // nil without modules
	return read(release, info)
}

func read(release string, info *debug.BuildInfo) Info {
	v := Info{Version: release, Go: runtime.Version(), System: runtime.GOOS + "/" + runtime.GOARCH}
	if info != nil {
		if v.Version == "" {
			v.Version = info.Main.Version
		}
		for _, setting := range info.Settings {
			if setting.Key == "vcs.revision" {
				v.Commit = setting.Value
			}
		}
	}
	if v.Version == "" {
		v.Version = "(devel)"
	}
	return v
}

// String returns the version with what it was built by and for.
func (i Info) String() string { return i.Version + " (" + i.Go + ", " + i.System + ")" }
