package chartvalues

import (
	"errors"
	"fmt"
	"io"
	"os"
	"reflect"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/argomesh/argomesh/api/v1alpha1"
	"github.com/argomesh/argomesh/cmd/agentctl/internal/accesswords"
	"github.com/argomesh/argomesh/identity"
)

// FileKind names what a [File] is.
const FileKind = "SpokeInstall"

// maxFile bounds what is read of one.
const maxFile = 1 << 20

// File is what the hub's side gives to who installs an agent without access to the hub. There is no
// secret in it: who the agent is, it proves by its SVID.
type File struct {
	Kind string `json:"kind"`
	// Name is the agent's.
	Name string `json:"name"`
	// SPIFFEIDs are those by which the hub knows the agent.
	SPIFFEIDs []string `json:"spiffeIDs"`
	// PrincipalID is the SPIFFE ID of the principal, or of the gateway before it.
	PrincipalID string `json:"principalID"`
	// Values are those of the chart argomesh-agent that [OfAgent] has, and no others.
	Values map[string]any `json:"values"`
}

// FileOf returns the file for an agent and a principal. It fails when the latter is not known.
func FileOf(agent *v1alpha1.Agent, principal, principalID string) (File, error) {
	if principal == "" || principalID == "" {
		return File{}, errors.New("--principal and --principal-id are missing: where the spoke reaches the principal, and the" +
			" SPIFFE ID that it has there; neither follows from what is on the hub")
	}
	return File{
		Kind: FileKind, Name: agent.Name, SPIFFEIDs: agent.Spec.Identity.SPIFFEIDs, PrincipalID: principalID,
		Values: OfAgent(agent, principal, principalID),
	}, nil
}

// Write writes the file as YAML.
func (f File) Write(w io.Writer) error {
	raw, err := yaml.Marshal(f)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(w, "# For \"agentctl spoke install --from\". There is no secret in it.\n%s", raw)
	return err
}

// ReadFile reads one; - stands for in. Unknown keys, and what is no SPIFFE ID, are refused.
func ReadFile(name string, in io.Reader) (File, error) {
	if name != "-" {
		file, err := os.Open(name) //nolint:gosec // the user names it
		if err != nil {
			return File{}, fmt.Errorf("--from: %w: on the hub \"agentctl agent create NAME -o install\" writes it", err)
		}
		defer func() { _ = file.Close() }() // nothing was written
		in = file
	}
	raw, err := io.ReadAll(io.LimitReader(in, maxFile+1))
	if err != nil {
		return File{}, fmt.Errorf("--from %s: %w", name, err)
	}
	f, err := parseFile(raw)
	if err != nil {
		return File{}, fmt.Errorf("--from %s: %w", name, err)
	}
	return f, nil
}

func parseFile(raw []byte) (File, error) {
	var f File
	if len(raw) > maxFile {
		return f, fmt.Errorf("it is larger than %d bytes", maxFile)
	}
	if err := yaml.UnmarshalStrict(raw, &f); err != nil {
		return f, err
	}
	if f.Kind != FileKind {
		return f, fmt.Errorf("it is of kind %q, not what \"agentctl agent create NAME -o install\" writes", f.Kind)
	}
	if _, err := identity.ParseAgentName(f.Name); err != nil {
		return f, err
	}
	if len(f.SPIFFEIDs) == 0 {
		return f, errors.New("it names no SPIFFE ID of the agent")
	}
	for _, id := range append([]string{f.PrincipalID}, f.SPIFFEIDs...) {
		if _, err := identity.ParseID(id); err != nil {
			return f, err
		}
	}
	return f, f.checkValues()
}

// checkValues refuses values that say more than [OfAgent] does: who wrote the file, or had it on its way, decides
// who the agent is for the hub, and nothing of what runs on the spoke, or of what its owner lets the hub do.
func (f File) checkValues() error {
	config, err := only(f.Values, "values", "config")
	if err != nil {
		return err
	}
	settings, _ := config["config"].(map[string]any)
	if settings, err = only(settings, "values.config", "name", "mode", "principal", "access", "mapping"); err != nil {
		return err
	}
	principal, _ := settings["principal"].(map[string]any)
	if principal, err = only(principal, "values.config.principal", "address", "spiffe_ids"); err != nil {
		return err
	}
	address, _ := principal["address"].(string)
	mode, _ := settings["mode"].(string)
	switch {
	case settings["name"] != f.Name:
		return fmt.Errorf("values.config.name is %v, and name is %s", settings["name"], f.Name)
	case mode != string(v1alpha1.ModeManaged) && mode != string(v1alpha1.ModeAutonomous):
		return fmt.Errorf("values.config.mode is %q", mode)
	case address == "":
		return errors.New("values.config.principal.address is missing")
	case !reflect.DeepEqual(principal["spiffe_ids"], []any{f.PrincipalID}):
		return fmt.Errorf("values.config.principal.spiffe_ids is %v, and principalID is %s", principal["spiffe_ids"], f.PrincipalID)
	}
	if _, err := f.AccessWords(); err != nil {
		return err
	}
	return checkNamespaces(settings["mapping"])
}

// AccessWords are the switches of live access that the file has on, as --access names them.
func (f File) AccessWords() (words []string, err error) {
	config, _ := f.Values["config"].(map[string]any)
	if config["access"] == nil {
		return nil, nil
	}
	access, is := config["access"].(map[string]any)
	if !is {
		return nil, errors.New("values.config.access is not an object: write the file again with" +
			" \"agentctl agent create NAME -o install\"")
	}
	left := len(access)
	for _, s := range accesswords.All() {
		if key, value := valuesOf(s.Name); access[key] == value {
			words = append(words, s.Name)
			left--
		}
	}
	if left > 0 {
		return nil, fmt.Errorf("values.config.access has more than the switches %s: %v", strings.Join(words, ", "), access)
	}
	return words, nil
}

// checkNamespaces refuses what is not a list of namespaces.
func checkNamespaces(mapping any) error {
	if mapping == nil {
		return nil
	}
	of, _ := mapping.(map[string]any)
	of, err := only(of, "values.config.mapping", "namespaces")
	if err != nil {
		return err
	}
	all, is := of["namespaces"].([]any)
	for _, one := range all {
		if _, text := one.(string); !text {
			is = false
		}
	}
	if !is {
		return errors.New("values.config.mapping.namespaces is not a list of namespaces: write the file again with" +
			" \"agentctl agent create NAME -o install\"")
	}
	return nil
}

// only returns m, unless it has another key than these, or none at all.
func only(m map[string]any, at string, keys ...string) (map[string]any, error) {
	for key := range m {
		if !slices.Contains(keys, key) {
			return nil, fmt.Errorf("%s.%s: the file says who the agent is, and nothing else of the installation: give that by --values", at,
				key)
		}
	}
	if len(m) == 0 {
		return nil, fmt.Errorf("%s is missing", at)
	}
	return m, nil
}
