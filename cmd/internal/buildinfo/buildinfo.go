// Package buildinfo says which build of Argomesh this process is. It owns the
// version and where it comes from; who shows it is left to others.
//
//	info := buildinfo.Read()
//	log.Info().Str("version", info.Version).Msg("starting")
package buildinfo

import (
	"fmt"
	"runtime/debug"
)

// version is set by the Makefile with -ldflags "-X ...buildinfo.version=v1.2.3".
// Empty means: as the Go toolchain recorded it.
var version string

// Info describes one build. No field is empty.
type Info struct {
	Version   string // "v1.2.3", or "(devel)" outside a release
	Revision  string // git commit, "+dirty" appended when the tree had changes; "unknown" without git
	GoVersion string // "go1.26.3"
}

// Read returns what the linker and the Go toolchain recorded in this binary.
func Read() Info {
	recorded, ok := debug.ReadBuildInfo()
	if !ok {
		recorded = &debug.BuildInfo{}
	}
	return read(version, recorded)
}

func read(linked string, recorded *debug.BuildInfo) Info {
	settings := make(map[string]string)
	for _, s := range recorded.Settings {
		settings[s.Key] = s.Value
	}
	info := Info{
		Version:   either(linked, either(recorded.Main.Version, "(devel)")),
		Revision:  either(settings["vcs.revision"], "unknown"),
		GoVersion: either(recorded.GoVersion, "unknown"),
	}
	if settings["vcs.modified"] == "true" {
		info.Revision += "+dirty"
	}
	return info
}

// String returns one line, as --version prints it after the program's name.
func (i Info) String() string {
	return fmt.Sprintf("%s (revision %s, %s)", i.Version, i.Revision, i.GoVersion)
}

func either(a, b string) string {
	if a != "" {
		return a
	}
	return b
}
