package principalconfig

import (
	"errors"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/argomesh/argomesh/backends/mapping"
	"github.com/argomesh/argomesh/cmd/internal/config"
	"github.com/argomesh/argomesh/fleet/hub"
)

// Values of Mapping.By, which are those of hub.Mapping.
const (
	byNamespace   = string(hub.ByNamespace)
	byDestination = string(hub.ByDestination)
)

// Mapping says whose the hub's Applications are. Key: mapping.
type Mapping struct {
	By         string   `koanf:"by" help:"how a new hub determines which managed agent owns an Application: namespace, by its namespace; destination, by the cluster that is its destination. Empty means destination, and namespace on a hub that was there before mappings were kept. ConfigMap argomesh-hub keeps the mapping in force, which this setting does not change"`
	Namespaces []string `koanf:"namespaces" help:"by destination: globs, or regular expressions between slashes, of the namespaces beside Argo CD's own in which such Applications may be"`
	Selector   string   `koanf:"selector" help:"label selector of the Applications that managed agents may have; all others are left alone"`
}

// DefaultMapping leaves the mapping to what the hub is, without a selector.
func DefaultMapping() Mapping { return Mapping{} }

// Validate reports every problem.
func (m Mapping) Validate() error {
	var problems []error
	if m.By != "" && m.By != byNamespace && m.By != byDestination {
		problems = append(problems, config.Invalid("by", "%q is neither %s nor %s", m.By, byNamespace, byDestination))
	}
	if m.By == byNamespace && len(m.Namespaces) > 0 {
		problems = append(problems,
			config.Invalid("namespaces", "is for the mapping by %s: by %s an agent has the namespaces of its Agent",
				byDestination, byNamespace))
	}
	if err := mapping.ValidateNamespaces(m.Namespaces); err != nil {
		problems = append(problems, config.Invalid("namespaces", "%v", err))
	}
	if _, err := labels.Parse(m.Selector); err != nil {
		problems = append(problems, config.Invalid("selector", "%q is not a label selector: %v", m.Selector, err))
	}
	return errors.Join(problems...)
}

// LabelSelector is nil when all are selected.
func (m Mapping) LabelSelector() labels.Selector {
	s, err := labels.Parse(m.Selector)
	if err != nil || s.Empty() {
		return nil // Validate has said what is wrong
	}
	return s
}
