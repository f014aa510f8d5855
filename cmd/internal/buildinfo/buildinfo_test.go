package buildinfo

import (
	"runtime/debug"
	"testing"
)

func TestRead(t *testing.T) {
	recorded := &debug.BuildInfo{
		GoVersion: "go1.26.3",
		Main:      debug.Module{Version: "v0.1.1-0.20261121"},
		Settings:  []debug.BuildSetting{{Key: "vcs.revision", Value: "abc"}, {Key: "vcs.modified", Value: "true"}},
	}
	for name, c := range map[string]struct {
		linked   string
		recorded *debug.BuildInfo
		want     Info
	}{
		"the linker's version wins":   {"v0.2.0", recorded, Info{"v0.2.0", "abc+dirty", "go1.26.3"}},
		"else the toolchain's":        {"", recorded, Info{"v0.1.1-0.20261121", "abc+dirty", "go1.26.3"}},
		"nothing recorded has a name": {"", &debug.BuildInfo{}, Info{"(devel)", "unknown", "unknown"}},
	} {
		t.Run(name, func(t *testing.T) {
			if got := read(c.linked, c.recorded); got != c.want {
				t.Errorf("read() = %+v, want %+v", got, c.want)
			}
		})
	}
	if got := Read(); got.Version == "" || got.Revision == "" || got.GoVersion == "" {
		t.Errorf("Read() = %+v, want no empty field", got)
	}
}
