// Package charts holds the Helm charts of the principal and the agent, and one of SPIRE for who has none, so
// that agentctl installs the very files that `helm install` does.
package charts

import (
	"embed"
	"fmt"
	"io/fs"
)

// The names of the charts, which are those of their folders, and of what is installed by them.
const (
	Principal = "argomesh-principal"
	Agent     = "argomesh-agent"
	SPIRE     = "argomesh-spire"
)

//go:embed all:argomesh-principal all:argomesh-agent all:argomesh-spire
var files embed.FS

// Open returns the folder of a chart.
func Open(name string) (fs.FS, error) {
	if name != Principal && name != Agent && name != SPIRE {
		return nil, fmt.Errorf("there is no chart %q", name)
	}
	return fs.Sub(files, name)
}
