//go:build linux

package harness

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// Resources of Argo CD, for ControlPlane.Resource.
var (
	Applications = schema.GroupVersionResource{Group: "argoproj.io", Version: "v1alpha1", Resource: "applications"}
	AppProjects  = schema.GroupVersionResource{Group: "argoproj.io", Version: "v1alpha1", Resource: "appprojects"}
)

// ArgoCDNamespace is the namespace Argo CD is installed in.
const ArgoCDNamespace = "argocd"

// ArgoCDConfig says which parts of Argo CD run for a control plane. A repo server and
// a Redis always do.
type ArgoCDConfig struct {
	// ControlPlane holds Argo CD's objects and is its own cluster
	// (https://kubernetes.default.svc). Required.
	ControlPlane *ControlPlane
	// Release is one of Releases, of which the definitions of Applications and AppProjects,
	// the controller and the repo server then are. Empty means that of the tool argocd.
	Release string
	// Controller runs the application controller.
	Controller bool
	// Server runs argocd-server.
	Server bool
	// UI has argocd-server serve Argo CD's web interface, which `make ui` builds.
	UI bool
	// ApplicationSets runs the ApplicationSet controller.
	ApplicationSets bool
	// DefaultProject creates the AppProject that argocd-server would create at its
	// first start, which allows everything, for an Argo CD without a server.
	DefaultProject bool
	// ApplicationNamespaces are those beside argocd in which Applications may be;
	// "*" means all.
	ApplicationNamespaces []string
	// ServerRedis is the Redis address that argocd-server uses. Empty means the one
	// started here.
	ServerRedis string
	// RedisAddress and RedisPassword are of a Redis that is there. Empty means that one is started.
	RedisAddress, RedisPassword string
	// ControllerArgs and ServerArgs are added to the command lines.
	ControllerArgs, ServerArgs []string
}

// ArgoCD is a running Argo CD. Methods may be called concurrently.
type ArgoCD struct {
	// Redis has no process where it was there.
	Redis *Redis
	// RepoServer always runs; the others are nil where not asked for.
	RepoServer, Controller, Server, ApplicationSets *Process
	// RepoServerAddress and ServerAddress are plaintext; the latter is empty without
	// a server.
	RepoServerAddress, ServerAddress string
	// AdminPassword is that of user admin, empty without a server.
	AdminPassword string

	h            *Harness
	controlPlane *ControlPlane
	namespaces   []string // those of ArgoCDConfig
	release      string   // likewise
	cliConfig    string   // of the program that it was attached from
	env          []string
}

// Releases are those of Argo CD that a spoke may have beside that of the tool argocd,
// oldest first.
func Releases() []string { return []string{"v3.2.6", "v3.3.19", "v3.4.13"} }

// ArgoCDManifests returns the files of Argo CD's custom resource definitions.
func (h *Harness) ArgoCDManifests() ([]string, error) {
	return h.tools.Files("argocd", "crds")
}

// EarlierArgoCDManifests returns the files of Applications and AppProjects as a release
// before ArgoCDManifests' defines them, such as v3.2.6.
func (h *Harness) EarlierArgoCDManifests(release string) ([]string, error) {
	return h.tools.Files("definitions", release)
}

// ArgoCDDefinitions are the files of the custom resource definitions that StartArgoCD applies
// unless the control plane has them: one that has them among its Manifests starts in less time.
func (h *Harness) ArgoCDDefinitions(cfg ArgoCDConfig) ([]string, error) {
	crds, err := h.ArgoCDManifests()
	if cfg.Release != "" {
		crds, err = h.EarlierArgoCDManifests(cfg.Release)
	}
	if err == nil && !cfg.Server && !cfg.ApplicationSets {
		// The largest definition by far, read by these two alone.
		crds = slices.DeleteFunc(crds, func(file string) bool { return filepath.Base(file) == "applicationset-crd.yaml" })
	}
	return crds, err
}

// StartArgoCD applies Argo CD's definitions and base objects and starts the parts. It
// returns when they are ready.
func (h *Harness) StartArgoCD(ctx context.Context, cfg ArgoCDConfig) (*ArgoCD, error) {
	if cfg.ControlPlane == nil {
		return nil, errors.New("start argocd: a control plane is required")
	}
	a := &ArgoCD{h: h, controlPlane: cfg.ControlPlane, namespaces: cfg.ApplicationNamespaces, release: cfg.Release}
	if err := a.start(ctx, cfg); err != nil {
		return nil, fmt.Errorf("argocd of %s: %w", cfg.ControlPlane.Name, err)
	}
	return a, nil
}

func (a *ArgoCD) start(ctx context.Context, cfg ArgoCDConfig) error {
	if err := a.writeEnvironment(); err != nil {
		return err
	}
	g, gctx := errgroup.WithContext(ctx)
	g.Go(func() error { return a.applyBase(gctx, cfg) })
	g.Go(func() (err error) {
		if cfg.RedisAddress != "" {
			a.Redis = &Redis{Address: cfg.RedisAddress}
			a.env = append(a.env, "REDIS_PASSWORD="+cfg.RedisPassword)
			return nil
		}
		a.Redis, err = a.h.StartRedis(gctx, a.name("redis"))
		return err
	})
	if err := g.Wait(); err != nil {
		return err
	}
	var err error
	if a.RepoServerAddress, err = a.h.Address(); err != nil {
		return err
	}
	g, gctx = errgroup.WithContext(ctx)
	g.Go(func() error { return a.startRepoServer(gctx) })
	if cfg.Controller {
		g.Go(func() error { return a.startController(gctx, cfg) })
	}
	if cfg.Server {
		g.Go(func() error { return a.startServer(gctx, cfg) })
	}
	if cfg.ApplicationSets {
		g.Go(func() error { return a.StartApplicationSets(gctx) })
	}
	return g.Wait()
}

// ApplyArgoCD applies Argo CD's definitions and base objects, for one whose parts run
// elsewhere, such as in pods. Of cfg it heeds which parts those are, and DefaultProject.
func (h *Harness) ApplyArgoCD(ctx context.Context, cfg ArgoCDConfig) error {
	return (&ArgoCD{h: h, controlPlane: cfg.ControlPlane}).applyBase(ctx, cfg)
}

// name makes process names unique in the harness.
func (a *ArgoCD) name(part string) string { return a.controlPlane.Name + "-" + part }

// writeEnvironment makes the folders that the container image would have.
func (a *ArgoCD) writeEnvironment() error {
	folders := map[string]string{
		"ARGOCD_GNUPGHOME":          "gnupg",
		"ARGOCD_TLS_DATA_PATH":      "tls",
		"ARGOCD_SSH_DATA_PATH":      "ssh",
		"ARGOCD_PLUGINSOCKFILEPATH": "plugins",
	}
	a.env = a.h.serverEnv(
		"KUBECONFIG="+a.controlPlane.Kubeconfig,
		// https://kubernetes.default.svc is the API server of KUBECONFIG.
		"ARGOCD_FAKE_IN_CLUSTER=true",
		"ARGOCD_GPG_ENABLED=false",
		// How often git is asked for news, and how long its answer is kept; minutes by
		// default, too long for someone who watches.
		"ARGOCD_RECONCILIATION_TIMEOUT=30s",
		"ARGOCD_RECONCILIATION_JITTER=0s",
		"GIT_CONFIG_NOSYSTEM=1",
	)
	for variable, folder := range folders {
		path := a.h.Path(a.controlPlane.Name, "argocd", folder)
		if err := os.MkdirAll(path, 0o700); err != nil {
			return err
		}
		a.env = append(a.env, variable+"="+path)
	}
	slices.Sort(a.env)
	return nil
}

// applyBase applies what an installation has before its first process starts.
func (a *ArgoCD) applyBase(ctx context.Context, cfg ArgoCDConfig) error {
	crds, err := a.h.ArgoCDDefinitions(cfg)
	if err != nil {
		return err
	}
	config, err := a.h.tools.Files("argocd", "config")
	if err != nil {
		return err
	}
	c := a.controlPlane
	g, gctx := errgroup.WithContext(ctx)
	for _, crd := range crds {
		if slices.Contains(c.defined, crd) {
			continue
		}
		g.Go(func() error { return c.ApplyFiles(gctx, crd) })
	}
	g.Go(func() error {
		if err := c.EnsureNamespace(gctx, ArgoCDNamespace); err != nil {
			return err
		}
		for _, file := range config {
			content, err := os.ReadFile(file)
			if err != nil {
				return err
			}
			objects, err := decode(content)
			if err != nil {
				return fmt.Errorf("read %s: %w", file, err)
			}
			for _, object := range objects {
				object.SetNamespace(ArgoCDNamespace)
			}
			if err := c.Apply(gctx, objects...); err != nil {
				return err
			}
		}
		return a.ensureSecret(gctx)
	})
	if err := g.Wait(); err != nil || !cfg.DefaultProject {
		return err
	}
	return a.ensureDefaultProject(ctx)
}

// ensureSecret creates the Secret in which argocd-server keeps its signing key; the
// other parts refuse to start without the key.
func (a *ArgoCD) ensureSecret(ctx context.Context) error {
	secrets := a.controlPlane.Resource(schema.GroupVersionResource{Version: "v1", Resource: "secrets"}, ArgoCDNamespace)
	return createOnce(ctx, secrets, map[string]any{
		"apiVersion": "v1",
		"kind":       "Secret",
		"metadata": map[string]any{
			"name":   "argocd-secret",
			"labels": map[string]any{"app.kubernetes.io/name": "argocd-secret", "app.kubernetes.io/part-of": "argocd"},
		},
		"data": map[string]any{"server.secretkey": base64.StdEncoding.EncodeToString([]byte(rand.Text()))},
	})
}

func (a *ArgoCD) ensureDefaultProject(ctx context.Context) error {
	return createOnce(ctx, a.controlPlane.Resource(AppProjects, ArgoCDNamespace), defaultProject(nil))
}

// openDefaultProject has a hub's AppProject default admit Applications of all namespaces,
// which that of an argocd-server does not.
func openDefaultProject(ctx context.Context, hub *ControlPlane, namespace string) error {
	projects := hub.Resource(AppProjects, namespace)
	err := createOnce(ctx, projects, defaultProject([]any{"*"}))
	if apierrors.IsNotFound(err) {
		return nil // this hub knows no projects
	}
	if err != nil {
		return fmt.Errorf("open AppProject default: %w", err)
	}
	o, err := projects.Get(ctx, "default", metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("read AppProject default: %w", err)
	}
	if _, named, _ := unstructured.NestedSlice(o.Object, "spec", "sourceNamespaces"); named {
		return nil
	}
	_, err = projects.Patch(ctx, "default", types.MergePatchType, []byte(`{"spec":{"sourceNamespaces":["*"]}}`), metav1.PatchOptions{})
	if err != nil {
		return fmt.Errorf("open AppProject default: %w", err)
	}
	return nil
}

func defaultProject(namespaces []any) map[string]any {
	spec := map[string]any{
		"sourceRepos":              []any{"*"},
		"destinations":             []any{map[string]any{"server": "*", "namespace": "*"}},
		"clusterResourceWhitelist": []any{map[string]any{"group": "*", "kind": "*"}},
	}
	if len(namespaces) > 0 {
		spec["sourceNamespaces"] = namespaces
	}
	return map[string]any{
		"apiVersion": "argoproj.io/v1alpha1",
		"kind":       "AppProject",
		"metadata":   map[string]any{"name": "default"},
		"spec":       spec,
	}
}

// program is that of a part in the release, and the environment in which it is that part.
func (a *ArgoCD) program(part string) (path string, env []string, err error) {
	if a.release == "" {
		path, err = a.h.tools.Path(part)
		return path, a.env, err
	}
	path, err = a.h.tools.Path("argocd-" + a.release)
	return path, append(slices.Clone(a.env), "ARGOCD_BINARY_NAME="+part), err
}

func (a *ArgoCD) startRepoServer(ctx context.Context) error {
	metrics, err := a.h.Port()
	if err != nil {
		return err
	}
	path, env, err := a.program("argocd-repo-server")
	if err != nil {
		return err
	}
	_, port, _ := net.SplitHostPort(a.RepoServerAddress)
	args := []string{
		"--address", "127.0.0.1", "--port", port,
		"--metrics-address", "127.0.0.1", "--metrics-port", fmt.Sprint(metrics),
		"--redis", a.Redis.Address,
		"--disable-tls",
		"--parallelismlimit", "4",
	}
	if a.release == "" {
		args = append(args, "--client-ca-path", "") // which earlier ones do not know
	}
	a.RepoServer, err = a.h.Start(ctx, Command{
		Name:  a.name("argocd-repo-server"),
		Path:  path,
		Args:  args,
		Env:   env,
		Ready: HTTPReady(fmt.Sprintf("http://127.0.0.1:%d/healthz", metrics)),
	})
	return err
}

func (a *ArgoCD) startController(ctx context.Context, cfg ArgoCDConfig) error {
	metrics, err := a.h.Port()
	if err != nil {
		return err
	}
	path, env, err := a.program("argocd-application-controller")
	if err != nil {
		return err
	}
	args := []string{
		"--kubeconfig", a.controlPlane.Kubeconfig,
		"--namespace", ArgoCDNamespace,
		"--redis", a.Redis.Address,
		"--repo-server", a.RepoServerAddress, "--repo-server-plaintext",
		"--metrics-port", fmt.Sprint(metrics),
		"--status-processors", "4", "--operation-processors", "4", "--kubectl-parallelism-limit", "4",
	}
	args = append(args, namespaceArgs(cfg)...)
	a.Controller, err = a.h.Start(ctx, Command{
		Name: a.name("argocd-application-controller"),
		Path: path,
		Args: append(args, cfg.ControllerArgs...),
		Env:  env,
		// Its metrics server takes no address and would listen on all of them.
		NoListen: true,
		// So it cannot be asked; but it binds the port once its caches are filled.
		Ready: func(context.Context) error {
			taken, err := portTaken(metrics)
			if err == nil && !taken {
				err = errors.New("it still fills its caches")
			}
			return err
		},
		// It finishes its queues before it ends.
		Grace: defaultGrace,
	})
	return err
}

func (a *ArgoCD) startServer(ctx context.Context, cfg ArgoCDConfig) error {
	metrics, err := a.h.Port()
	if err != nil {
		return err
	}
	program, env := "argocd-server", a.env
	if cfg.UI {
		program, env = "argocd-ui", append(slices.Clone(env), "ARGOCD_BINARY_NAME=argocd-server")
	}
	path, err := a.h.tools.Path(program)
	if err != nil {
		return err
	}
	if a.ServerAddress, err = a.h.Address(); err != nil {
		return err
	}
	redis := cfg.ServerRedis
	if redis == "" {
		redis = a.Redis.Address
	}
	_, port, _ := net.SplitHostPort(a.ServerAddress)
	args := []string{
		"--kubeconfig", a.controlPlane.Kubeconfig,
		"--namespace", ArgoCDNamespace,
		"--address", "127.0.0.1", "--port", port,
		"--metrics-address", "127.0.0.1", "--metrics-port", fmt.Sprint(metrics),
		"--redis", redis,
		"--repo-server", a.RepoServerAddress, "--repo-server-plaintext",
		"--insecure", // plaintext on loopback
		"--staticassets", "",
	}
	args = append(args, namespaceArgs(cfg)...)
	a.Server, err = a.h.Start(ctx, Command{
		Name:  a.name("argocd-server"),
		Path:  path,
		Args:  append(args, cfg.ServerArgs...),
		Env:   env,
		Ready: HTTPReady("http://" + a.ServerAddress + "/healthz"),
	})
	if err != nil {
		return err
	}
	a.AdminPassword, err = a.adminPassword(ctx)
	return err
}

// adminPassword reads the password that argocd-server generates at its first start.
func (a *ArgoCD) adminPassword(ctx context.Context) (string, error) {
	secrets := a.controlPlane.Resource(schema.GroupVersionResource{Version: "v1", Resource: "secrets"}, ArgoCDNamespace)
	var password []byte
	err := Eventually(ctx, "the admin's password", func() error {
		secret, err := secrets.Get(ctx, "argocd-initial-admin-secret", metav1.GetOptions{})
		if err != nil {
			return err
		}
		encoded, _, err := unstructured.NestedString(secret.Object, "data", "password")
		if err != nil {
			return Permanent(err)
		}
		password, err = base64.StdEncoding.DecodeString(encoded)
		return err
	})
	return string(password), err
}

// StartApplicationSets starts the ApplicationSet controller, with progressive syncs,
// of an Argo CD that began without. It is called once, and not concurrently.
func (a *ArgoCD) StartApplicationSets(ctx context.Context) error {
	path, err := a.h.tools.Path("argocd-applicationset-controller")
	if err != nil {
		return err
	}
	var addresses [3]string
	for i := range addresses {
		if addresses[i], err = a.h.Address(); err != nil {
			return err
		}
	}
	args := []string{
		"--kubeconfig", a.controlPlane.Kubeconfig,
		"--namespace", ArgoCDNamespace,
		"--metrics-addr", addresses[0], "--probe-addr", addresses[1], "--webhook-addr", addresses[2],
		"--argocd-repo-server", a.RepoServerAddress, "--repo-server-plaintext",
		"--enable-progressive-syncs",
	}
	if len(a.namespaces) > 0 {
		// A single one would be the only namespace that it watches, "*" taken as a name.
		// With several it asks for a list of the SCM providers that it may call.
		namespaces := append([]string{ArgoCDNamespace}, a.namespaces...)
		args = append(args, "--applicationset-namespaces", strings.Join(namespaces, ","), "--enable-scm-providers=false")
	}
	a.ApplicationSets, err = a.h.Start(ctx, Command{
		Name: a.name("argocd-applicationset-controller"),
		Path: path,
		Args: args,
		Env:  a.env,
		// It registers no health check; its metrics are served last.
		Ready: HTTPReady("http://" + addresses[0] + "/metrics"),
	})
	return err
}

func namespaceArgs(cfg ArgoCDConfig) []string {
	if len(cfg.ApplicationNamespaces) == 0 {
		return nil
	}
	return []string{"--application-namespaces", strings.Join(cfg.ApplicationNamespaces, ",")}
}

// CLIConfig is the configuration file that Login writes, for argocd --config.
func (a *ArgoCD) CLIConfig() string {
	return cmp.Or(a.cliConfig, a.h.Path(a.name("argocd-cli.yaml")))
}

// Login logs the argocd command line in as admin.
func (a *ArgoCD) Login(ctx context.Context) error {
	_, err := a.CLI(ctx, "login", a.ServerAddress, "--plaintext", "--username", "admin", "--password", a.AdminPassword)
	return err
}

// CLI runs the argocd command line, logged in by Login, and returns its standard
// output.
func (a *ArgoCD) CLI(ctx context.Context, args ...string) (string, error) {
	if a.Server == nil {
		return "", errors.New("argocd: this Argo CD has no server")
	}
	path, err := a.h.tools.Path("argocd")
	if err != nil {
		return "", err
	}
	cmd := exec.CommandContext(ctx, path, append(args, "--config", a.CLIConfig())...)
	cmd.Env = []string{"HOME=" + a.h.Path("home"), "PATH=" + a.h.searchPath()}
	cmd.Stdin = strings.NewReader("") // never ask
	var out, complaint bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &complaint
	if err := cmd.Run(); err != nil {
		return out.String(), fmt.Errorf("argocd %s: %w: %s", strings.Join(redacted(args), " "), err, strings.TrimSpace(complaint.String()))
	}
	return out.String(), nil
}

// SyncedAndHealthy returns an error unless the Application is both that `argocd app get
// --output json` printed.
func SyncedAndHealthy(printed string) error {
	var app struct {
		Status struct {
			Sync, Health struct{ Status string }
		}
	}
	if err := json.Unmarshal([]byte(printed), &app); err != nil {
		return fmt.Errorf("argocd app get: %w", err)
	}
	if app.Status.Sync.Status != "Synced" || app.Status.Health.Status != "Healthy" {
		return fmt.Errorf("argocd-server shows sync status %q, health %q", app.Status.Sync.Status, app.Status.Health.Status)
	}
	return nil
}

// redacted keeps passwords out of errors.
func redacted(args []string) []string {
	args = slices.Clone(args)
	for i := 1; i < len(args); i++ {
		if args[i-1] == "--password" {
			args[i] = "***"
		}
	}
	return args
}
