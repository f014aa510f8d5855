//go:build linux

package harness

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/argomesh/argomesh/test/tools/toolset"
)

// Settings are configuration keys of our binaries in their dotted form, such as
// "stream.listen", with their values.
type Settings map[string]any

// Binary returns the path of one of our own programs, as `make build` leaves it. The
// error says so when it is not there.
func (h *Harness) Binary(name string) (string, error) { return Binary(h.tools, name) }

// Binary is Harness.Binary for those of the checkout of tools.
func Binary(tools *toolset.Set, name string) (string, error) {
	path := filepath.Join(tools.Checkout(), "bin", name)
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("%s is not built; run: make build", name)
	} else if err != nil {
		return "", err
	}
	return path, nil
}

// WorkloadAPIConfig says what a Workload API server hands out.
type WorkloadAPIConfig struct {
	// Name is unique in the harness. Required.
	Name string
	// TrustDomain signs. Required.
	TrustDomain string
	// CADir holds the authority's keys; servers of one trust domain share it.
	// Required.
	CADir string
	// Entries are the SPIFFE IDs in the form of devworkload's flag --entry. Required.
	Entries []string
	// TTL is the life of an X.509-SVID. Zero means an hour.
	TTL time.Duration
	// Args are added to the command line.
	Args []string
}

// WorkloadAPI is a Workload API server. SIGUSR1 rotates its authority.
type WorkloadAPI struct {
	*Process
	// Socket is its address, of the form unix:///path.
	Socket string
}

// StartWorkloadAPI starts a Workload API server.
func (h *Harness) StartWorkloadAPI(ctx context.Context, cfg WorkloadAPIConfig) (*WorkloadAPI, error) {
	path, err := h.Binary("devworkload")
	if err != nil {
		return nil, err
	}
	socket := h.Path(cfg.Name + ".sock")
	args := []string{"--socket", socket, "--trust-domain", cfg.TrustDomain, "--ca-dir", cfg.CADir}
	for _, entry := range cfg.Entries {
		args = append(args, "--entry", entry)
	}
	if cfg.TTL != 0 {
		args = append(args, "--x509-ttl", cfg.TTL.String())
	}
	p, err := h.Start(ctx, Command{
		Name:  cfg.Name,
		Path:  path,
		Args:  append(args, cfg.Args...),
		Env:   h.serverEnv(),
		Ready: func(ctx context.Context) error { return accepts(ctx, socket) },
	})
	return &WorkloadAPI{Process: p, Socket: "unix://" + socket}, err
}

func accepts(ctx context.Context, socket string) error {
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "unix", socket)
	if err != nil {
		return err
	}
	return conn.Close()
}

// PrincipalConfig says how a principal runs.
type PrincipalConfig struct {
	// Name is that of the process. Empty means principal.
	Name string
	// ControlPlane is the hub. Required.
	ControlPlane *ControlPlane
	// WorkloadAPI gives it its SVID. Required.
	WorkloadAPI *WorkloadAPI
	// Redis is that of the hub's Argo CD. Nil means that the principal leaves it alone.
	Redis *Redis
	// Program is one of test/tools that runs instead of the principal of this checkout.
	// Empty means the latter.
	Program string
	// Settings are added to those made from the other fields.
	Settings Settings
}

// Principal is a running principal.
type Principal struct {
	*Process
	// Address is that of the stream service for agents.
	Address string
	// AdminAddress serves /livez, /readyz and /metrics.
	AdminAddress string
	// ConfigFile is the file it runs with.
	ConfigFile string
}

// StartPrincipal starts a principal and waits until it is ready. Its hub has an AppProject
// default that admits all Applications, unless the test made one that names namespaces:
// without one none leaves the hub.
func (h *Harness) StartPrincipal(ctx context.Context, cfg PrincipalConfig) (*Principal, error) {
	if cfg.ControlPlane == nil || cfg.WorkloadAPI == nil {
		return nil, errors.New("start principal: a control plane and a Workload API are required")
	}
	if cfg.Name == "" {
		cfg.Name = "principal"
	}
	namespace, elsewhere := cfg.Settings["namespace"].(string)
	if !elsewhere {
		namespace = ArgoCDNamespace
	}
	if err := openDefaultProject(ctx, cfg.ControlPlane, namespace); err != nil {
		return nil, err
	}
	p := &Principal{}
	var err error
	if p.Address, err = h.Address(); err != nil {
		return nil, err
	}
	settings := Settings{
		"namespace":             ArgoCDNamespace,
		"kubernetes.kubeconfig": cfg.ControlPlane.Kubeconfig,
		"identity.socket":       cfg.WorkloadAPI.Socket,
		"stream.listen":         p.Address,
		"mapping.by":            "namespace", // as tests have it that say nothing; empty for the default of a hub
	}
	if cfg.Redis != nil {
		settings["redis.address"] = cfg.Redis.Address
	}
	maps.Copy(settings, cfg.Settings)
	if settings["mapping.by"] == "" {
		delete(settings, "mapping.by") // earlier releases refuse an empty one
	}
	p.Process, p.AdminAddress, p.ConfigFile, err = h.startOwn(ctx, cmp.Or(cfg.Program, "principal"), cfg.Name, settings, Command{})
	return p, err
}

// AgentConfig says how an agent runs.
type AgentConfig struct {
	// Name is the agent's. Required.
	Name string
	// Mode is managed or autonomous. Required.
	Mode string
	// ControlPlane is the spoke. Required.
	ControlPlane *ControlPlane
	// WorkloadAPI gives it its SVID. Required.
	WorkloadAPI *WorkloadAPI
	// PrincipalAddress is where the principal, or something in between, listens.
	// Required.
	PrincipalAddress string
	// PrincipalIDs are the SPIFFE IDs the principal may have. Required.
	PrincipalIDs []string
	// Process is the name of the process. Empty means agent-<name>.
	Process string
	// Redis is that of the spoke's Argo CD. Nil means that the agent does not read it.
	Redis *Redis
	// Program is one of test/tools that runs instead of the agent of this checkout.
	// Empty means the latter.
	Program string
	// Settings are added to those made from the other fields.
	Settings Settings
	// Env is added to its environment.
	Env []string
	// Nice is that of its Command.
	Nice int
}

// Agent is a running agent.
type Agent struct {
	*Process
	// AdminAddress serves /livez, /readyz and /metrics.
	AdminAddress string
	// ConfigFile is the file it runs with.
	ConfigFile string
}

// StartAgent starts an agent and waits until it is ready, which one that stands by
// is too.
func (h *Harness) StartAgent(ctx context.Context, cfg AgentConfig) (*Agent, error) {
	if cfg.Name == "" || cfg.ControlPlane == nil || cfg.WorkloadAPI == nil {
		return nil, errors.New("start agent: a name, a control plane and a Workload API are required")
	}
	if cfg.Process == "" {
		cfg.Process = "agent-" + cfg.Name
	}
	settings := Settings{
		"name":                  cfg.Name,
		"mode":                  cfg.Mode,
		"namespace":             ArgoCDNamespace,
		"kubernetes.kubeconfig": cfg.ControlPlane.Kubeconfig,
		"identity.socket":       cfg.WorkloadAPI.Socket,
		"principal.address":     cfg.PrincipalAddress,
		"principal.spiffe_ids":  cfg.PrincipalIDs,
	}
	if cfg.Mode == "managed" {
		settings["policy.projects"] = []string{"*", "default"} // default is the spoke's own, and its owner lets the hub use it
	}
	if cfg.Redis != nil {
		settings["redis.address"] = cfg.Redis.Address
	}
	maps.Copy(settings, cfg.Settings)
	a := &Agent{}
	var err error
	a.Process, a.AdminAddress, a.ConfigFile, err = h.startOwn(ctx, cmp.Or(cfg.Program, "agent"), cfg.Process, settings, Command{Env: cfg.Env, Nice: cfg.Nice})
	return a, err
}

// startOwn runs one of our programs, of this checkout or from before, with a configuration file, as
// its Command says beside that.
func (h *Harness) startOwn(ctx context.Context, program, name string, settings Settings, as Command) (p *Process, admin, file string, err error) {
	path, err := h.tools.Path(program)
	if errors.Is(err, toolset.ErrUnknown) {
		path, err = h.Binary(program)
	}
	if err != nil {
		return nil, "", "", err
	}
	if admin, err = h.Address(); err != nil {
		return nil, "", "", err
	}
	if _, ok := settings["admin.listen"]; !ok {
		settings["admin.listen"] = admin
	}
	admin = fmt.Sprint(settings["admin.listen"])
	file = h.Path(name + ".yaml")
	content, err := yaml.Marshal(settings.nested())
	if err != nil {
		return nil, "", "", err
	}
	if err := os.WriteFile(file, content, 0o600); err != nil {
		return nil, "", "", err
	}
	as.Name, as.Path, as.Args, as.Ready = name, path, []string{"--config", file}, begun("http://"+admin+"/readyz")
	p, err = h.Start(ctx, as)
	return p, admin, file, err
}

// begun waits until a process of ours is ready, or an agent knows that its hub refuses it:
// who starts one that is refused wants to see that.
func begun(url string) func(context.Context) error {
	ready := HTTPReady(url)
	return func(ctx context.Context) error {
		err := ready(ctx)
		if err != nil && strings.Contains(err.Error(), "[-] principal: refused by the hub") {
			return nil
		}
		return err
	}
}

// nested turns dotted keys into maps in maps. A key that is a prefix of another is
// an error of the caller.
func (s Settings) nested() map[string]any {
	root := make(map[string]any)
	for _, key := range slices.Sorted(maps.Keys(s)) {
		parts := strings.Split(key, ".")
		at := root
		for _, part := range parts[:len(parts)-1] {
			next, ok := at[part].(map[string]any)
			if !ok {
				next = make(map[string]any)
				at[part] = next
			}
			at = next
		}
		at[parts[len(parts)-1]] = s[key]
	}
	return root
}

// Agentctl runs agentctl against the hub and returns its standard output.
func (h *Harness) Agentctl(ctx context.Context, hub *ControlPlane, args ...string) (string, error) {
	path, err := h.Binary("agentctl")
	if err != nil {
		return "", err
	}
	args = append([]string{"--kubeconfig", hub.Kubeconfig, "--namespace", ArgoCDNamespace}, args...)
	cmd := exec.CommandContext(ctx, path, args...)
	var out, complaint bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &complaint
	if err := cmd.Run(); err != nil {
		return out.String(), fmt.Errorf("agentctl %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(complaint.String()))
	}
	return out.String(), nil
}
