package version

import (
	"runtime/debug"
	"strings"
	"testing"
)

func TestReleaseWinsOverModuleVersion(t *testing.T) {
	module := &debug.BuildInfo{Main: debug.Module{Version: "v0.1.0"}, Settings: []debug.BuildSetting{{Key: "vcs.revision", Value: "abc"}}}
	for _, c := range []struct {
		release string
		info    *debug.BuildInfo
		want    Info
	}{
		{"v1.2.3", module, Info{Version: "v1.2.3", Commit: "abc"}},
		{"", module, Info{Version: "v0.1.0", Commit: "abc"}},
		{"", new(debug.BuildInfo), Info{Version: "(devel)"}},
		{"", nil, Info{Version: "(devel)"}},
	} {
		got := read(c.release, c.info)
		if got.Version != c.want.Version || got.Commit != c.want.Commit || got.Go == "" || !strings.Contains(got.System, "/") {
			t.Errorf("%q: got %+v, want %+v", c.release, got, c.want)
		}
	}
}
