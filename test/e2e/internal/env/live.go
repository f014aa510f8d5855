//go:build linux

package env

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"github.com/argomesh/argomesh/identity"
	"github.com/argomesh/argomesh/test/harness"
	"github.com/argomesh/argomesh/test/harness/harnesstest"
)

// Live is a hub with a principal and its Envoy, and two spokes without Argo CD,
// of which the managed one has pods. Tests that take an agent away, or change what
// one may do, bring their own.
type Live struct {
	Harness    *harness.Harness
	Hub        *harness.ControlPlane
	Spokes     map[string]*harness.ControlPlane // by agent
	FrontDoor  *harness.FrontDoor
	identities atomic.Int64         // Workload API servers started
	Identity   *harness.WorkloadAPI // of principal and Envoy
	// ByToken is a listener of the principal for agents with tokens, in clear text.
	ByToken string
	Agents  map[string]*LiveAgent
	Redis   map[string]*harness.Redis // of the spoke's Argo CD, by agent, where the hub may read it
	Log     *containerLog
	// CADir holds the authority of TrustDomain, ForeignCADir that of ForeignDomain.
	CADir, ForeignCADir string
}

// FrontDoorTTL is the life of the SVIDs of principal and Envoy: another than any agent has,
// so that they do not rotate together.
const FrontDoorTTL = 40 * time.Second

var livePool = newSharedPool("live", 1, startLive, (*Live).info, attachLive)

// liveInfo describes a Live to another program.
type liveInfo struct {
	Hub                               harness.ControlPlaneInfo
	Spokes                            map[string]harness.ControlPlaneInfo
	FrontDoor                         harness.FrontDoorInfo
	Identity                          harness.WorkloadAPIInfo
	Agents                            map[string]harness.AgentInfo
	ByToken, Log, CADir, ForeignCADir string
}

func (w *Live) info() liveInfo {
	d := liveInfo{
		Hub: w.Hub.Info(), FrontDoor: w.FrontDoor.Info(), Identity: w.Identity.Info(), ByToken: w.ByToken,
		Log: w.Log.path, CADir: w.CADir, ForeignCADir: w.ForeignCADir,
		Spokes: map[string]harness.ControlPlaneInfo{}, Agents: map[string]harness.AgentInfo{},
	}
	for name, spoke := range w.Spokes {
		d.Spokes[name], d.Agents[name] = spoke.Info(), w.Agents[name].Info()
	}
	return d
}

func attachLive(h *harness.Harness, d liveInfo) (*Live, error) {
	w := &Live{
		Harness: h, FrontDoor: harness.AttachFrontDoor(d.FrontDoor), Identity: harness.AttachWorkloadAPI(d.Identity),
		ByToken: d.ByToken, CADir: d.CADir, ForeignCADir: d.ForeignCADir,
		Spokes: map[string]*harness.ControlPlane{}, Agents: map[string]*LiveAgent{},
	}
	var err error
	if w.Log, err = newContainerLog(d.Log); err != nil {
		return nil, err
	}
	if w.Hub, err = h.AttachControlPlane(d.Hub); err != nil {
		return nil, err
	}
	for name, spoke := range d.Spokes {
		if w.Spokes[name], err = h.AttachControlPlane(spoke); err != nil {
			return nil, err
		}
		w.Agents[name] = &LiveAgent{Agent: harness.AttachAgent(d.Agents[name]), Env: w, Name: name, Spoke: w.Spokes[name]}
	}
	return w, nil
}

// SharedLive is SharedArgo for the environment of live access.
func SharedLive(t *testing.T) *Live {
	t.Helper()
	harnesstest.SkipMissing(t, "envoy", "etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kwok", "kubectl", "argocd")
	return livePool.share(t).Get(t)
}

// OwnLive is OwnArgo for the environment of live access.
func OwnLive(t *testing.T) *Live {
	t.Helper()
	harnesstest.SkipMissing(t, "envoy", "etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kwok", "kubectl", "argocd")
	return livePool.TakeAlone(t).Get(t)
}

const (
	// LivePod is a pod of the managed spoke, in namespace default.
	LivePod = "shell"
	// LiveContainer is the container of LivePod and of all pods that a test makes.
	LiveContainer = "main"
	// EchoPort is a port of every pod that echoes what it gets.
	EchoPort = 7
)

// NewLive is a Live of which nothing runs.
func NewLive(h *harness.Harness) *Live {
	return &Live{
		Harness: h, CADir: h.Path("ca"), ForeignCADir: h.Path("foreign-ca"),
		Spokes: map[string]*harness.ControlPlane{}, Agents: map[string]*LiveAgent{},
	}
}

func startLive(ctx context.Context, h *harness.Harness) (*Live, error) {
	w := NewLive(h)
	kubelet, err := w.Kubelet(ctx)
	if err != nil {
		return nil, err
	}
	manifests, err := BareManifests(h)
	if err != nil {
		return nil, err
	}
	etcd, err := h.StartEtcd(ctx, "etcd")
	if err != nil {
		return nil, err
	}
	var hub, withPods, other *harness.ControlPlane
	g, gctx := errgroup.WithContext(ctx)
	for name, into := range map[string]**harness.ControlPlane{"hub": &hub, Managed: &withPods, Autonomous: &other} {
		g.Go(func() (err error) {
			*into, err = h.StartControlPlane(gctx, harness.ControlPlaneConfig{
				Name: name, Etcd: etcd, Manifests: manifests, Workloads: name == Managed, Kubelet: map[string]string{Managed: kubelet}[name],
			})
			if err != nil {
				return err
			}
			return (*into).EnsureNamespace(gctx, harness.ArgoCDNamespace)
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	w.Hub, w.Spokes[Managed], w.Spokes[Autonomous] = hub, withPods, other
	if w.Identity, err = w.Identify(ctx, fmt.Sprint(PrincipalID, ",dns=localhost,ttl=", FrontDoorTTL), "--federate", ForeignDomain+"="+w.ForeignCADir); err != nil {
		return nil, err
	}
	if w.ByToken, err = h.Address(); err != nil {
		return nil, err
	}
	if w.FrontDoor, err = h.StartFrontDoor(ctx, harness.PrincipalConfig{
		ControlPlane: w.Hub, WorkloadAPI: w.Identity, Settings: harness.Settings{
			"log.level":        "debug",
			"stream.listeners": []map[string]any{{"listen": w.ByToken, "method": identity.MethodJWT, "plaintext": true}},
		},
	}); err != nil {
		return nil, err
	}
	for name, mode := range map[string]string{Managed: "managed", Autonomous: "autonomous"} {
		if w.Agents[name], err = w.Register(ctx, name, mode, w.Spokes[name], harness.ArgoCDNamespace, Everything, Everything); err != nil {
			return nil, err
		}
	}
	err = w.startPod(ctx)
	return w, err
}

// Everything are the switches that let through all that the tests ask of the agents
// of all.
var Everything = map[string]any{"enabled": true, "writes": true, "exec": true, "secrets": true}

// Kubelet writes the file of what the node of the managed spoke does.
func (w *Live) Kubelet(ctx context.Context) (string, error) {
	var err error
	if w.Log, err = newContainerLog(w.Harness.Path("container.log")); err != nil {
		return "", err
	}
	echo, err := listenEcho(ctx)
	if err != nil {
		return "", err
	}
	folder := w.Harness.Path("container")
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return "", err
	}
	var out bytes.Buffer
	for kind, spec := range map[string]map[string]any{
		"ClusterLogs":        {"logs": []any{map[string]any{"logsFile": w.Log.path}}},
		"ClusterAttach":      {"attaches": []any{map[string]any{"logsFile": w.Log.path}}},
		"ClusterExec":        {"execs": []any{map[string]any{"local": map[string]any{"workDir": folder}}}},
		"ClusterPortForward": {"forwards": []any{map[string]any{"ports": []any{EchoPort}, "target": map[string]any{"address": "127.0.0.1", "port": echo}}}},
	} {
		document, err := yaml.Marshal(map[string]any{
			"apiVersion": "kwok.x-k8s.io/v1alpha1", "kind": kind, "metadata": map[string]any{"name": "all"}, "spec": spec,
		})
		if err != nil {
			return "", err
		}
		out.WriteString("---\n")
		out.Write(document)
	}
	file := w.Harness.Path("kubelet.yaml")
	return file, os.WriteFile(file, out.Bytes(), 0o600)
}

// listenEcho serves on a port of loopback for as long as the tests run.
func listenEcho(ctx context.Context) (port int, err error) {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer func() { _ = conn.Close() }() // all was said
				_, _ = io.Copy(conn, conn)          // a caller that leaves is no error
			}()
		}
	}()
	return l.Addr().(*net.TCPAddr).Port, nil
}

// containerLog is what all containers have written, in the form of a container
// runtime's file.
type containerLog struct {
	path string
	mu   sync.Mutex // guards file
	file *os.File
}

func newContainerLog(path string) (*containerLog, error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	return &containerLog{path: path, file: file}, err
}

// Say adds a line.
func (l *containerLog) Say(text string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, err := fmt.Fprintf(l.file, "%s stdout F %s\n", time.Now().UTC().Format(time.RFC3339Nano), text)
	return err
}

// Identify starts a Workload API server of the hub's trust domain.
func (w *Live) Identify(ctx context.Context, entry string, args ...string) (*harness.WorkloadAPI, error) {
	return w.Harness.StartWorkloadAPI(ctx, harness.WorkloadAPIConfig{
		Name: fmt.Sprint("spire-", w.identities.Add(1)), TrustDomain: TrustDomain, CADir: w.CADir, Entries: []string{entry}, Args: args,
	})
}

// IdentifyForeign starts one of the trust domain with which the principal federates.
func (w *Live) IdentifyForeign(ctx context.Context, id string, ttl time.Duration) (*harness.WorkloadAPI, error) {
	return w.Harness.StartWorkloadAPI(ctx, harness.WorkloadAPIConfig{
		Name: fmt.Sprint("spire-", w.identities.Add(1)), TrustDomain: ForeignDomain, CADir: w.ForeignCADir, Entries: []string{id}, TTL: ttl,
		Args: []string{"--jwt-ttl", ttl.String(), "--federate", TrustDomain + "=" + w.CADir},
	})
}

// startPod starts livePod.
func (w *Live) startPod(ctx context.Context) error {
	spoke := w.Spokes[Managed]
	if err := errors.Join(w.Log.Say("the container has started"), spoke.EnsureNamespace(ctx, "default")); err != nil {
		return err
	}
	if err := spoke.ApplyYAML(ctx, []byte(`apiVersion: v1
kind: Pod
metadata: {name: `+LivePod+`, namespace: default}
spec:
  automountServiceAccountToken: false
  containers:
  - {name: `+LiveContainer+`, image: "registry.invalid/shell:1", stdin: true, tty: false}
`)); err != nil {
		return err
	}
	return harness.Eventually(ctx, "the pod runs", func() error {
		pod, err := spoke.Resource(Pods, "default").Get(ctx, LivePod, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if phase := fmt.Sprint(pod.Object["status"].(map[string]any)["phase"]); phase != "Running" {
			return fmt.Errorf("its phase is %s", phase)
		}
		return nil
	})
}

// LiveAgent is an agent with live access.
type LiveAgent struct {
	*harness.Agent
	Env   *Live
	Name  string
	Spoke *harness.ControlPlane
}

// Enrolment is how an agent becomes one.
type Enrolment struct {
	Name, Mode string
	// Spoke has the agent, in a namespace.
	Spoke     *harness.ControlPlane
	Namespace string
	// On either side the switches say what it may do.
	OnHub, OnSpoke map[string]any
	// API hands out its identity, ID. Nil means one that lasts, of the hub's trust domain.
	API *harness.WorkloadAPI
	ID  string
	// Address and Settings say where the principal is, if not at its own listener, and more.
	Address  string
	Settings harness.Settings
}

// Register registers and starts an agent in a namespace of the spoke. On either side
// the switches say what it may do.
func (w *Live) Register(ctx context.Context, name, mode string, spoke *harness.ControlPlane, namespace string, onHub, onSpoke map[string]any) (*LiveAgent, error) {
	return w.enrol(ctx, Enrolment{Name: name, Mode: mode, Spoke: spoke, Namespace: namespace, OnHub: onHub, OnSpoke: onSpoke})
}

// enrol registers and starts an agent, and returns when it can be reached.
func (w *Live) enrol(ctx context.Context, e Enrolment) (a *LiveAgent, err error) {
	a = &LiveAgent{Env: w, Name: e.Name, Spoke: e.Spoke}
	if err := errors.Join(w.Hub.EnsureNamespace(ctx, e.Name), e.Spoke.EnsureNamespace(ctx, e.Namespace)); err != nil {
		return nil, err
	}
	if e.API == nil {
		e.ID = SPIFFEID(e.Name)
		if e.API, err = w.Identify(ctx, e.ID); err != nil {
			return nil, err
		}
	}
	if _, err := w.Harness.Agentctl(ctx, w.Hub, "agent", "create", e.Name, "--mode", e.Mode, "--spiffe-id", e.ID, "--wait"); err != nil {
		return nil, err
	}
	if err := a.Allow(ctx, e.OnHub); err != nil {
		return nil, err
	}
	settings := harness.Settings{"namespace": e.Namespace, "log.level": "debug"}
	for key, value := range e.OnSpoke {
		settings["access."+key] = value
	}
	redis := w.Redis[e.Name]
	settings["redis_proxy.enabled"] = redis != nil
	maps.Copy(settings, e.Settings)
	if a.Agent, err = w.Harness.StartAgent(ctx, harness.AgentConfig{
		Name: e.Name, Mode: e.Mode, ControlPlane: e.Spoke, WorkloadAPI: e.API, Redis: redis,
		PrincipalAddress: cmp.Or(e.Address, w.FrontDoor.Address), PrincipalIDs: []string{PrincipalID}, Settings: settings,
	}); err != nil {
		return nil, err
	}
	err = a.Reachable(ctx)
	return a, err
}

// Agent starts an agent on the managed spoke for one test, in a namespace of its name.
func (w *Live) Agent(t *testing.T, name string, onHub, onSpoke map[string]any) *LiveAgent {
	t.Helper()
	return w.Start(t, Enrolment{Name: name, Mode: "managed", Spoke: w.Spokes[Managed], Namespace: name, OnHub: onHub, OnSpoke: onSpoke})
}

// Start starts an agent that goes with the test.
func (w *Live) Start(t *testing.T, e Enrolment) *LiveAgent {
	t.Helper()
	a, err := w.enrol(t.Context(), e)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context())
		err := w.Hub.Resource(Agents, harness.ArgoCDNamespace).Delete(ctx, e.Name, metav1.DeleteOptions{})
		if apierrors.IsNotFound(err) {
			err = nil
		}
		if err := errors.Join(err, a.Stop(ctx)); err != nil {
			t.Error(err)
		}
	})
	return a
}

// Allow sets spec.access of the Agent.
func (a *LiveAgent) Allow(ctx context.Context, switches map[string]any) error {
	return MergePatch(ctx, a.Env.Hub.Resource(Agents, harness.ArgoCDNamespace), a.Name, map[string]any{"spec": map[string]any{"access": switches}})
}

// Access returns what Argo CD has of the agent's cluster now.
func (a *LiveAgent) Access(ctx context.Context) (*rest.Config, error) {
	return a.Env.Harness.ClusterAccess(ctx, a.Env.Hub, a.Name)
}

// Reachable waits until the spoke itself answers.
func (a *LiveAgent) Reachable(ctx context.Context) error {
	return harness.Eventually(ctx, "agent "+a.Name+" can be reached", func() error {
		config, err := a.Access(ctx)
		if err != nil {
			return err
		}
		res, err := FetchOne(ctx, config, "/version")
		if err != nil {
			return err
		}
		if res.Status != http.StatusOK || res.Header.Get("Warning") != "" {
			return fmt.Errorf("%d, warning %q: %.200s", res.Status, res.Header.Get("Warning"), res.Body)
		}
		return nil
	})
}

// Reply is a whole answer.
// Reply is an answer that was read to its end.
type Reply struct {
	Status int
	Header http.Header
	Body   []byte
}

// FetchOne gets a path on a connection of its own.
func FetchOne(ctx context.Context, config *rest.Config, path string) (Reply, error) {
	ctx, cancel := context.WithTimeout(ctx, Patience)
	defer cancel()
	res, err := OpenStream(ctx, config, path)
	if err != nil {
		return Reply{}, err
	}
	defer func() { _ = res.Body.Close() }() // it was read
	body, err := io.ReadAll(res.Body)
	return Reply{Status: res.StatusCode, Header: res.Header, Body: body}, err
}

// OpenStream gets a path and returns with the header of the answer, on a connection of its
// own, which ends with ctx.
func OpenStream(ctx context.Context, config *rest.Config, path string) (*http.Response, error) {
	tlsConfig, err := rest.TLSConfigFor(config)
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, config.Host+path, http.NoBody)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Authorization", "Bearer "+config.BearerToken)
	transport := &http.Transport{TLSClientConfig: tlsConfig, ForceAttemptHTTP2: len(config.NextProtos) == 0}
	context.AfterFunc(ctx, transport.CloseIdleConnections)
	return transport.RoundTrip(req)
}

// Caller calls one agent, with kubectl and otherwise.
type Caller struct {
	T          *testing.T
	Agent      *LiveAgent
	Config     *rest.Config
	Kubeconfig string
	Folder     string // for kubectl
}

// Dial opens a connection to Envoy that speaks HTTP/1.1.
func (c *Caller) Dial() (net.Conn, error) {
	config, err := rest.TLSConfigFor(c.Config)
	if err != nil {
		return nil, err
	}
	config.NextProtos = []string{"http/1.1"}
	host, _, _ := strings.Cut(strings.TrimPrefix(c.Config.Host, "https://"), "/")
	dialer := tls.Dialer{Config: config}
	return dialer.DialContext(c.T.Context(), "tcp", host)
}

// Caller returns one with what the cluster Secret says now.
func (a *LiveAgent) Caller(t *testing.T) *Caller {
	t.Helper()
	config, err := a.Access(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	c := &Caller{T: t, Agent: a, Config: config, Folder: t.TempDir()}
	c.Kubeconfig = filepath.Join(c.Folder, "kubeconfig")
	if err := harness.WriteKubeconfig(c.Kubeconfig, config); err != nil {
		t.Fatal(err)
	}
	return c
}

// Direct returns a caller of the spoke's API server itself.
func (a *LiveAgent) Direct(t *testing.T) *Caller {
	t.Helper()
	return &Caller{T: t, Agent: a, Config: a.Spoke.REST(), Kubeconfig: a.Spoke.Kubeconfig, Folder: t.TempDir()}
}

// Command returns kubectl with args, not started. It is killed when patience ends.
func (c *Caller) Command(args ...string) *exec.Cmd {
	c.T.Helper()
	ctx, cancel := context.WithTimeout(c.T.Context(), Patience)
	c.T.Cleanup(cancel)
	cmd, err := c.Agent.Env.Harness.Kubectl(ctx, c.Folder, c.Kubeconfig, args...)
	if err != nil {
		c.T.Fatal(err)
	}
	cmd.WaitDelay = Patience // of what it started, on a busy machine
	return cmd
}

// LogSays is what kubectl said.
type LogSays struct {
	Out, Err string
	Code     int
}

// Try runs kubectl to its end, whatever that is.
func (c *Caller) Try(input string, args ...string) LogSays {
	c.T.Helper()
	cmd := c.Command(args...)
	var out, complaint bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(input), &out, &complaint
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		c.T.Fatal(err)
	}
	return LogSays{out.String(), complaint.String(), cmd.ProcessState.ExitCode()}
}

// Run runs kubectl, which must succeed, and returns its output.
func (c *Caller) Run(input string, args ...string) string {
	c.T.Helper()
	s := c.Try(input, args...)
	if s.Code != 0 {
		c.T.Fatalf("kubectl %s: exit code %d: %s%s", strings.Join(args, " "), s.Code, s.Out, s.Err)
	}
	return s.Out
}

// Refused runs kubectl, which must fail and say all texts.
func (c *Caller) Refused(input string, texts []string, args ...string) {
	c.T.Helper()
	s := c.Try(input, args...)
	if s.Code == 0 {
		c.T.Fatalf("kubectl %s succeeded: %s", strings.Join(args, " "), s.Out)
	}
	for _, text := range texts {
		if !strings.Contains(s.Err, text) {
			c.T.Errorf("kubectl %s does not say %q: %s", strings.Join(args, " "), text, s.Err)
		}
	}
}

// Clients returns a clientset of the caller.
func (c *Caller) Clients() *kubernetes.Clientset {
	c.T.Helper()
	clients, err := kubernetes.NewForConfig(c.Config)
	if err != nil {
		c.T.Fatal(err)
	}
	return clients
}

// Follower reads lines of something that goes on.
type Follower struct {
	Name  string
	Lines chan string
	ended chan error // the reason, io.EOF for an ordered end
	Close func()
}

// Follow gets a path whose answer goes on.
func (c *Caller) Follow(path string) *Follower {
	c.T.Helper()
	ctx, cancel := context.WithCancel(c.T.Context())
	res, err := OpenStream(ctx, c.Config, path) //nolint:bodyclose // the follower closes it
	if err != nil {
		c.T.Fatal(err)
	}
	if res.StatusCode != http.StatusOK {
		body, _ := io.ReadAll(res.Body) // as much of it as came
		c.T.Fatalf("%s: %s: %s", path, res.Status, body)
	}
	return NewFollower(c.T, path, res.Body, cancel)
}

// NewFollower follows r, which ends after stop.
func NewFollower(t *testing.T, name string, r io.ReadCloser, stop func()) *Follower {
	t.Helper()
	f := &Follower{Name: name, Lines: make(chan string), ended: make(chan error, 1), Close: stop}
	t.Cleanup(func() {
		stop()
		_ = r.Close() // no one reads on
	})
	go func() {
		reader := bufio.NewReader(r)
		for {
			line, err := reader.ReadString('\n')
			if err != nil {
				f.ended <- err
				return
			}
			select {
			case f.Lines <- line:
			case <-t.Context().Done():
				return
			}
		}
	}()
	return f
}

// Until reads lines up to one with text.
func (f *Follower) Until(t *testing.T, text string) string {
	t.Helper()
	line, err := f.Find(t, text)
	if err != nil {
		t.Fatalf("%s ended before %q came: %v", f.Name, text, err)
	}
	return line
}

// Find reads lines up to one with text. The error is the reason of an end before it.
func (f *Follower) Find(t *testing.T, text string) (line string, err error) {
	t.Helper()
	late := time.NewTimer(Patience)
	defer late.Stop()
	for {
		select {
		case line := <-f.Lines:
			if strings.Contains(line, text) {
				return line, nil
			}
		case err := <-f.ended:
			return "", err
		case <-late.C:
			t.Fatalf("%s: %q did not come", f.Name, text)
		}
	}
}

// Breaks waits until what is followed ends, with an error.
func (f *Follower) Breaks(t *testing.T) {
	t.Helper()
	if err := f.End(t); errors.Is(err, io.EOF) {
		t.Errorf("%s ended as if it were complete", f.Name)
	}
}

// End waits until what is followed ends, and returns the reason.
func (f *Follower) End(t *testing.T) error {
	t.Helper()
	begun, late := time.Now(), time.NewTimer(Patience)
	defer late.Stop()
	for {
		select {
		case <-f.Lines:
		case err := <-f.ended:
			t.Logf("%s ended after %v: %v", f.Name, time.Since(begun).Round(time.Millisecond), err)
			return err
		case <-late.C:
			t.Fatalf("%s goes on", f.Name)
		}
	}
}

// Audited returns the records of an agent that ok accepts.
func (w *Live) Audited(agent string, ok func(map[string]any) bool) ([]map[string]any, error) {
	content, err := os.ReadFile(w.FrontDoor.AuditFile)
	if err != nil {
		return nil, err
	}
	var found []map[string]any
	for line := range bytes.Lines(content) {
		if !bytes.HasSuffix(line, []byte("\n")) {
			break // it is being written
		}
		var record map[string]any
		if err := json.Unmarshal(line, &record); err != nil {
			return nil, fmt.Errorf("a line of the audit: %w", err)
		}
		if record["agent"] == agent && ok(record) {
			found = append(found, record)
		}
	}
	return found, nil
}

// Recorded waits for the record of one call, with these fields among others.
func (w *Live) Recorded(t *testing.T, agent string, want map[string]any) map[string]any {
	t.Helper()
	var found []map[string]any
	Eventually(t, fmt.Sprint("a record of ", want), func() (err error) {
		found, err = w.Audited(agent, func(record map[string]any) bool {
			for key, value := range want {
				if fmt.Sprint(record[key]) != fmt.Sprint(value) {
					return false
				}
			}
			return true
		})
		if err == nil && len(found) == 0 {
			err = errors.New("there is none")
		}
		return err
	})
	return found[len(found)-1]
}
