package chartvalues

import (
	"errors"
	"fmt"
	"io"
	"os"

	"sigs.k8s.io/yaml"

	"github.com/argomesh/argomesh/api/v1alpha1"
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
	// Values are those of the chart argomesh-agent.
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
			return File{}, fmt.Errorf("--from: %w", err)
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
	return f, nil
}
