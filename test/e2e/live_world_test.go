//go:build linux

package e2e

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

// liveWorld is a hub with a principal and its Envoy, and two spokes without Argo CD,
// of which the managed one has pods. Tests that take an agent away, or change what
// one may do, bring their own.
type liveWorld struct {
	h          *harness.Harness
	hub        *harness.ControlPlane
	spokes     map[string]*harness.ControlPlane // by agent
	door       *harness.FrontDoor
	identities atomic.Int64         // Workload API servers started
	identity   *harness.WorkloadAPI // of principal and Envoy
	// byToken is a listener of the principal for agents with tokens, in clear text.
	byToken string
	agents  map[string]*liveAgent
	redis   map[string]*harness.Redis // of the spoke's Argo CD, by agent, where the hub may read it
	log     *containerLog
}

// doorTTL is the life of the SVIDs of principal and Envoy: another than any agent has,
// so that they do not rotate together.
const doorTTL = 40 * time.Second

var live = newWorlds(1, startLive)

// theLiveWorld is what theWorld is, of the live world.
func theLiveWorld(t *testing.T) *liveWorld {
	t.Helper()
	harnesstest.SkipMissing(t, "envoy", "etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kwok", "kubectl", "argocd")
	return live.share(t).get(t)
}

// theLiveWorldAlone is what theWorldAlone is, of the live world.
func theLiveWorldAlone(t *testing.T) *liveWorld {
	t.Helper()
	harnesstest.SkipMissing(t, "envoy", "etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kwok", "kubectl", "argocd")
	return live.takeAlone(t).get(t)
}

const (
	// livePod is a pod of the managed spoke, in namespace default, and liveContainer
	// the container of it and of all pods that a test makes.
	livePod, liveContainer = "shell", "main"
	// echoPort is a port of every pod behind which somebody says back what he hears.
	echoPort = 7
)

func startLive(ctx context.Context, h *harness.Harness) (*liveWorld, error) {
	w := &liveWorld{h: h, spokes: map[string]*harness.ControlPlane{}, agents: map[string]*liveAgent{}}
	kubelet, err := w.kubelet()
	if err != nil {
		return nil, err
	}
	manifests, err := quietManifests(h)
	if err != nil {
		return nil, err
	}
	etcd, err := h.StartEtcd(ctx, "etcd")
	if err != nil {
		return nil, err
	}
	var hub, withPods, other *harness.ControlPlane
	g, gctx := errgroup.WithContext(ctx)
	for name, into := range map[string]**harness.ControlPlane{"hub": &hub, managed: &withPods, autonomous: &other} {
		g.Go(func() (err error) {
			*into, err = h.StartControlPlane(gctx, harness.ControlPlaneConfig{
				Name: name, Etcd: etcd, Manifests: manifests, Workloads: name == managed, Kubelet: map[string]string{managed: kubelet}[name],
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
	w.hub, w.spokes[managed], w.spokes[autonomous] = hub, withPods, other
	if w.identity, err = w.identify(ctx, fmt.Sprint(principalID, ",dns=localhost,ttl=", doorTTL), "--federate", foreignDomain+"="+h.Path("foreign-ca")); err != nil {
		return nil, err
	}
	if w.byToken, err = h.Address(); err != nil {
		return nil, err
	}
	if w.door, err = h.StartFrontDoor(ctx, harness.PrincipalConfig{
		ControlPlane: w.hub, WorkloadAPI: w.identity, Settings: harness.Settings{
			"log.level":        "debug",
			"stream.listeners": []map[string]any{{"listen": w.byToken, "method": identity.MethodJWT, "plaintext": true}},
		},
	}); err != nil {
		return nil, err
	}
	for name, mode := range map[string]string{managed: "managed", autonomous: "autonomous"} {
		if w.agents[name], err = w.register(ctx, name, mode, w.spokes[name], harness.ArgoCDNamespace, everything, everything); err != nil {
			return nil, err
		}
	}
	err = w.startPod(ctx)
	return w, err
}

// everything are the switches that let through all that the tests ask of the agents
// of all.
var everything = map[string]any{"enabled": true, "writes": true, "exec": true, "secrets": true}

// kubelet writes the file of what the node of the managed spoke does.
func (w *liveWorld) kubelet() (string, error) {
	var err error
	if w.log, err = newContainerLog(w.h.Path("container.log")); err != nil {
		return "", err
	}
	echo, err := listenEcho()
	if err != nil {
		return "", err
	}
	folder := w.h.Path("container")
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return "", err
	}
	var out bytes.Buffer
	for kind, spec := range map[string]map[string]any{
		"ClusterLogs":        {"logs": []any{map[string]any{"logsFile": w.log.path}}},
		"ClusterAttach":      {"attaches": []any{map[string]any{"logsFile": w.log.path}}},
		"ClusterExec":        {"execs": []any{map[string]any{"local": map[string]any{"workDir": folder}}}},
		"ClusterPortForward": {"forwards": []any{map[string]any{"ports": []any{echoPort}, "target": map[string]any{"address": "127.0.0.1", "port": echo}}}},
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
	file := w.h.Path("kubelet.yaml")
	return file, os.WriteFile(file, out.Bytes(), 0o600)
}

// listenEcho serves on a port of loopback for as long as the tests run.
func listenEcho() (port int, err error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
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

// say adds a line.
func (l *containerLog) say(text string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, err := fmt.Fprintf(l.file, "%s stdout F %s\n", time.Now().UTC().Format(time.RFC3339Nano), text)
	return err
}

// identify starts a Workload API server of the hub's trust domain.
func (w *liveWorld) identify(ctx context.Context, entry string, args ...string) (*harness.WorkloadAPI, error) {
	return w.h.StartWorkloadAPI(ctx, harness.WorkloadAPIConfig{
		Name: fmt.Sprint("spire-", w.identities.Add(1)), TrustDomain: trustDomain, CADir: w.h.Path("ca"), Entries: []string{entry}, Args: args,
	})
}

// identifyForeign starts one of the trust domain with which the principal federates.
func (w *liveWorld) identifyForeign(ctx context.Context, id string, ttl time.Duration) (*harness.WorkloadAPI, error) {
	return w.h.StartWorkloadAPI(ctx, harness.WorkloadAPIConfig{
		Name: fmt.Sprint("spire-", w.identities.Add(1)), TrustDomain: foreignDomain, CADir: w.h.Path("foreign-ca"), Entries: []string{id}, TTL: ttl,
		Args: []string{"--jwt-ttl", ttl.String(), "--federate", trustDomain + "=" + w.h.Path("ca")},
	})
}

// startPod starts livePod.
func (w *liveWorld) startPod(ctx context.Context) error {
	spoke := w.spokes[managed]
	if err := errors.Join(w.log.say("the container has started"), spoke.EnsureNamespace(ctx, "default")); err != nil {
		return err
	}
	if err := spoke.ApplyYAML(ctx, []byte(`apiVersion: v1
kind: Pod
metadata: {name: `+livePod+`, namespace: default}
spec:
  automountServiceAccountToken: false
  containers:
  - {name: `+liveContainer+`, image: "registry.invalid/shell:1", stdin: true, tty: false}
`)); err != nil {
		return err
	}
	return harness.Eventually(ctx, "the pod runs", func() error {
		pod, err := spoke.Resource(pods, "default").Get(ctx, livePod, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if phase := fmt.Sprint(pod.Object["status"].(map[string]any)["phase"]); phase != "Running" {
			return fmt.Errorf("its phase is %s", phase)
		}
		return nil
	})
}

// liveAgent is an agent with live access.
type liveAgent struct {
	*harness.Agent
	w     *liveWorld
	name  string
	spoke *harness.ControlPlane
}

// enrolment is how an agent becomes one.
type enrolment struct {
	name, mode string
	// spoke has the agent, in a namespace.
	spoke     *harness.ControlPlane
	namespace string
	// On either side the switches say what it may do.
	onHub, onSpoke map[string]any
	// api hands out its identity, id. Nil means one that lasts, of the hub's trust domain.
	api *harness.WorkloadAPI
	id  string
	// settings say where the principal is, if not at its own listener, and more.
	address  string
	settings harness.Settings
}

// register registers and starts an agent in a namespace of the spoke. On either side
// the switches say what it may do.
func (w *liveWorld) register(ctx context.Context, name, mode string, spoke *harness.ControlPlane, namespace string, onHub, onSpoke map[string]any) (*liveAgent, error) {
	return w.enrol(ctx, enrolment{name: name, mode: mode, spoke: spoke, namespace: namespace, onHub: onHub, onSpoke: onSpoke})
}

// enrol registers and starts an agent, and returns when it can be reached.
func (w *liveWorld) enrol(ctx context.Context, e enrolment) (a *liveAgent, err error) {
	a = &liveAgent{w: w, name: e.name, spoke: e.spoke}
	if err := errors.Join(w.hub.EnsureNamespace(ctx, e.name), e.spoke.EnsureNamespace(ctx, e.namespace)); err != nil {
		return nil, err
	}
	if e.api == nil {
		e.id = idOf(e.name)
		if e.api, err = w.identify(ctx, e.id); err != nil {
			return nil, err
		}
	}
	if _, err := w.h.Agentctl(ctx, w.hub, "agent", "create", e.name, "--mode", e.mode, "--spiffe-id", e.id, "--wait"); err != nil {
		return nil, err
	}
	if err := a.allow(ctx, e.onHub); err != nil {
		return nil, err
	}
	settings := harness.Settings{"namespace": e.namespace, "log.level": "debug"}
	for key, value := range e.onSpoke {
		settings["access."+key] = value
	}
	redis := w.redis[e.name]
	settings["redis_proxy.enabled"] = redis != nil
	maps.Copy(settings, e.settings)
	if a.Agent, err = w.h.StartAgent(ctx, harness.AgentConfig{
		Name: e.name, Mode: e.mode, ControlPlane: e.spoke, WorkloadAPI: e.api, Redis: redis,
		PrincipalAddress: cmp.Or(e.address, w.door.Address), PrincipalIDs: []string{principalID}, Settings: settings,
	}); err != nil {
		return nil, err
	}
	err = a.reachable(ctx)
	return a, err
}

// agent starts an agent on the managed spoke for one test, in a namespace of its name.
func (w *liveWorld) agent(t *testing.T, name string, onHub, onSpoke map[string]any) *liveAgent {
	t.Helper()
	return w.start(t, enrolment{name: name, mode: "managed", spoke: w.spokes[managed], namespace: name, onHub: onHub, onSpoke: onSpoke})
}

// start starts an agent that goes with the test.
func (w *liveWorld) start(t *testing.T, e enrolment) *liveAgent {
	t.Helper()
	a, err := w.enrol(t.Context(), e)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context())
		err := w.hub.Resource(agents, harness.ArgoCDNamespace).Delete(ctx, e.name, metav1.DeleteOptions{})
		if apierrors.IsNotFound(err) {
			err = nil
		}
		if err := errors.Join(err, a.Stop(ctx)); err != nil {
			t.Error(err)
		}
	})
	return a
}

// allow sets spec.access of the Agent.
func (a *liveAgent) allow(ctx context.Context, switches map[string]any) error {
	return mergePatch(ctx, a.w.hub.Resource(agents, harness.ArgoCDNamespace), a.name, map[string]any{"spec": map[string]any{"access": switches}})
}

// access returns what Argo CD has of the agent's cluster now.
func (a *liveAgent) access(ctx context.Context) (*rest.Config, error) {
	return a.w.h.ClusterAccess(ctx, a.w.hub, a.name)
}

// reachable waits until the spoke itself answers.
func (a *liveAgent) reachable(ctx context.Context) error {
	return harness.Eventually(ctx, "agent "+a.name+" can be reached", func() error {
		config, err := a.access(ctx)
		if err != nil {
			return err
		}
		res, err := fetchOne(ctx, config, "/version")
		if err != nil {
			return err
		}
		if res.status != http.StatusOK || res.header.Get("Warning") != "" {
			return fmt.Errorf("%d, warning %q: %.200s", res.status, res.header.Get("Warning"), res.body)
		}
		return nil
	})
}

// reply is a whole answer.
type reply struct {
	status int
	header http.Header
	body   []byte
}

// fetchOne gets a path on a connection of its own.
func fetchOne(ctx context.Context, config *rest.Config, path string) (reply, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	res, err := begin(ctx, config, path)
	if err != nil {
		return reply{}, err
	}
	defer func() { _ = res.Body.Close() }() // it was read
	body, err := io.ReadAll(res.Body)
	return reply{status: res.StatusCode, header: res.Header, body: body}, err
}

// begin gets a path and returns with the header of the answer, on a connection of its
// own, which ends with ctx.
func begin(ctx context.Context, config *rest.Config, path string) (*http.Response, error) {
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

// caller calls one agent, with kubectl and otherwise.
type caller struct {
	t          *testing.T
	agent      *liveAgent
	config     *rest.Config
	kubeconfig string
	folder     string // for kubectl
}

// dial opens a connection to Envoy that speaks HTTP/1.1.
func (c *caller) dial() (net.Conn, error) {
	config, err := rest.TLSConfigFor(c.config)
	if err != nil {
		return nil, err
	}
	config.NextProtos = []string{"http/1.1"}
	host, _, _ := strings.Cut(strings.TrimPrefix(c.config.Host, "https://"), "/")
	dialer := tls.Dialer{Config: config}
	return dialer.DialContext(c.t.Context(), "tcp", host)
}

// caller returns one with what the cluster Secret says now.
func (a *liveAgent) caller(t *testing.T) *caller {
	t.Helper()
	config, err := a.access(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	c := &caller{t: t, agent: a, config: config, folder: t.TempDir()}
	c.kubeconfig = filepath.Join(c.folder, "kubeconfig")
	if err := harness.WriteKubeconfig(c.kubeconfig, config); err != nil {
		t.Fatal(err)
	}
	return c
}

// direct returns a caller of the spoke's API server itself.
func (a *liveAgent) direct(t *testing.T) *caller {
	t.Helper()
	return &caller{t: t, agent: a, config: a.spoke.REST(), kubeconfig: a.spoke.Kubeconfig, folder: t.TempDir()}
}

// command returns kubectl with args, not started. It is killed when patience ends.
func (c *caller) command(args ...string) *exec.Cmd {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), patience)
	c.t.Cleanup(cancel)
	cmd, err := c.agent.w.h.Kubectl(ctx, c.folder, c.kubeconfig, args...)
	if err != nil {
		c.t.Fatal(err)
	}
	cmd.WaitDelay = patience // of what it started, on a busy machine
	return cmd
}

// said is what kubectl said.
type said struct {
	Out, Err string
	Code     int
}

// try runs kubectl to its end, whatever that is.
func (c *caller) try(input string, args ...string) said {
	c.t.Helper()
	cmd := c.command(args...)
	var out, complaint bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(input), &out, &complaint
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		c.t.Fatal(err)
	}
	return said{out.String(), complaint.String(), cmd.ProcessState.ExitCode()}
}

// run runs kubectl, which must succeed, and returns its output.
func (c *caller) run(input string, args ...string) string {
	c.t.Helper()
	s := c.try(input, args...)
	if s.Code != 0 {
		c.t.Fatalf("kubectl %s: exit code %d: %s%s", strings.Join(args, " "), s.Code, s.Out, s.Err)
	}
	return s.Out
}

// refused runs kubectl, which must fail and say all texts.
func (c *caller) refused(input string, texts []string, args ...string) {
	c.t.Helper()
	s := c.try(input, args...)
	if s.Code == 0 {
		c.t.Fatalf("kubectl %s succeeded: %s", strings.Join(args, " "), s.Out)
	}
	for _, text := range texts {
		if !strings.Contains(s.Err, text) {
			c.t.Errorf("kubectl %s does not say %q: %s", strings.Join(args, " "), text, s.Err)
		}
	}
}

// clients returns a clientset of the caller.
func (c *caller) clients() *kubernetes.Clientset {
	c.t.Helper()
	clients, err := kubernetes.NewForConfig(c.config)
	if err != nil {
		c.t.Fatal(err)
	}
	return clients
}

// follower reads lines of something that goes on.
type follower struct {
	name  string
	lines chan string
	ended chan error // the reason, io.EOF for an ordered end
	close func()
}

// follow gets a path whose answer goes on.
func (c *caller) follow(path string) *follower {
	c.t.Helper()
	ctx, cancel := context.WithCancel(c.t.Context())
	res, err := begin(ctx, c.config, path) //nolint:bodyclose // the follower closes it
	if err != nil {
		c.t.Fatal(err)
	}
	if res.StatusCode != http.StatusOK {
		body, _ := io.ReadAll(res.Body) // as much of it as came
		c.t.Fatalf("%s: %s: %s", path, res.Status, body)
	}
	return newFollower(c.t, path, res.Body, cancel)
}

// newFollower follows r, which ends after stop.
func newFollower(t *testing.T, name string, r io.ReadCloser, stop func()) *follower {
	t.Helper()
	f := &follower{name: name, lines: make(chan string), ended: make(chan error, 1), close: stop}
	t.Cleanup(func() {
		stop()
		_ = r.Close() // nobody reads on
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
			case f.lines <- line:
			case <-t.Context().Done():
				return
			}
		}
	}()
	return f
}

// until reads lines up to one with text.
func (f *follower) until(t *testing.T, text string) string {
	t.Helper()
	line, err := f.find(t, text)
	if err != nil {
		t.Fatalf("%s ended before %q came: %v", f.name, text, err)
	}
	return line
}

// find reads lines up to one with text. The error is the reason of an end before it.
func (f *follower) find(t *testing.T, text string) (line string, err error) {
	t.Helper()
	late := time.NewTimer(patience)
	defer late.Stop()
	for {
		select {
		case line := <-f.lines:
			if strings.Contains(line, text) {
				return line, nil
			}
		case err := <-f.ended:
			return "", err
		case <-late.C:
			t.Fatalf("%s: %q did not come", f.name, text)
		}
	}
}

// breaks waits until what is followed ends, with an error.
func (f *follower) breaks(t *testing.T) {
	t.Helper()
	if err := f.end(t); errors.Is(err, io.EOF) {
		t.Errorf("%s ended as if it were complete", f.name)
	}
}

// end waits until what is followed ends, and returns the reason.
func (f *follower) end(t *testing.T) error {
	t.Helper()
	begun, late := time.Now(), time.NewTimer(patience)
	defer late.Stop()
	for {
		select {
		case <-f.lines:
		case err := <-f.ended:
			t.Logf("%s ended after %v: %v", f.name, time.Since(begun).Round(time.Millisecond), err)
			return err
		case <-late.C:
			t.Fatalf("%s goes on", f.name)
		}
	}
}

// audited returns the records of an agent that ok accepts.
func (w *liveWorld) audited(agent string, ok func(map[string]any) bool) ([]map[string]any, error) {
	content, err := os.ReadFile(w.door.AuditFile)
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

// recorded waits for the record of one call, with these fields among others.
func (w *liveWorld) recorded(t *testing.T, agent string, want map[string]any) map[string]any {
	t.Helper()
	var found []map[string]any
	eventually(t, fmt.Sprint("a record of ", want), func() (err error) {
		found, err = w.audited(agent, func(record map[string]any) bool {
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
