//go:build linux

package live

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
	"go.opentelemetry.io/otel/trace/noop"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/argomesh/argomesh/api/v1alpha1"
	"github.com/argomesh/argomesh/identity"
	"github.com/argomesh/argomesh/proxies/access"
	"github.com/argomesh/argomesh/proxies/audit"
	"github.com/argomesh/argomesh/proxies/resource"
	"github.com/argomesh/argomesh/proxies/resource/replies"
	"github.com/argomesh/argomesh/proxies/resource/spoke"
	"github.com/argomesh/argomesh/stream"
	"github.com/argomesh/argomesh/test/e2e/internal/env"
	"github.com/argomesh/argomesh/test/harness"
	"github.com/argomesh/argomesh/test/harness/harnesstest"
	"github.com/argomesh/argomesh/test/kit"
)

// kubeletConfig is what kwok plays for pods: commands run on this machine, the log of every
// container is one file, and every port is that of the test's server.
const kubeletConfig = `
apiVersion: kwok.x-k8s.io/v1alpha1
kind: ClusterExec
metadata: {name: all}
spec:
  execs:
  - local: {workDir: %[1]q, envs: [{name: PATH, value: /usr/bin:/bin}]}
---
apiVersion: kwok.x-k8s.io/v1alpha1
kind: ClusterLogs
metadata: {name: all}
spec:
  logs:
  - {logsFile: %[2]q, follow: true}
---
apiVersion: kwok.x-k8s.io/v1alpha1
kind: ClusterAttach
metadata: {name: all}
spec:
  attaches:
  - {logsFile: %[2]q}
---
apiVersion: kwok.x-k8s.io/v1alpha1
kind: ClusterPortForward
metadata: {name: all}
spec:
  forwards:
  - target: {address: 127.0.0.1, port: %[3]d}
`

// liveSpoke is a real API server with pods, and both ends of the resource proxy
// before it: TLS, as Envoy would end it, the hub, a connection, the spoke.
type liveSpoke struct {
	t       *testing.T
	cluster *harness.ControlPlane
	tools   string // kubectl
	// url is that of the agent at the hub, and through that of the API server.
	url, direct string
	logFile     string
	workDir     string
	echo        net.Listener // what a forwarded port reaches

	away    atomic.Bool
	mu      sync.Mutex // guards what follows
	tunnels []net.Conn
	records bytes.Buffer
}

// Write keeps the records of the audit.
func (l *liveSpoke) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.records.Write(p)
}

// audited returns the records so far.
func (l *liveSpoke) audited() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.records.String()
}

const liveToken = "token-of-edge-1"

// Revoked implements resource.Verifier: no token is.
func (*liveSpoke) Revoked(string) bool { return false }

// Bound implements resource.Verifier.
func (*liveSpoke) Bound(string, resource.Target) bool { return true }

// Changed implements resource.Verifier: it never does.
func (*liveSpoke) Changed() <-chan struct{} { return nil }

// Verify implements resource.Verifier.
func (*liveSpoke) Verify(token string) (identity.AgentName, error) {
	if token != liveToken {
		return identity.AgentName{}, fmt.Errorf("no token of an agent: %w", identity.ErrUnauthenticated)
	}
	return identity.ParseAgentName("edge-1")
}

// openAccess lets everything through, with the rules of no one.
func openAccess() access.Config {
	return access.Config{
		Enabled: true, Writes: true, Secrets: v1alpha1.SecretsOn, Exec: true, Nodes: true, EphemeralContainers: true, Tokens: true, Proxy: true,
		Rules: []access.Rule{{Name: "everything", Groups: []string{"*"}, Resources: []string{"*"}}},
	}
}

// startLiveSpoke starts it all.
func startLiveSpoke(t *testing.T) *liveSpoke {
	t.Helper()
	harnesstest.SkipMissing(t, "etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl", "kwok")
	h := harnesstest.New(t)
	l := &liveSpoke{t: t, logFile: h.Path("container.log"), workDir: h.Path("container")}
	var err error
	if l.tools, err = harnesstest.Tools(t).Path("kubectl"); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(l.workDir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(l.logFile, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	l.serveEcho()
	config := h.Path("kubelet.yaml")
	if err := os.WriteFile(config, fmt.Appendf(nil, kubeletConfig, l.workDir, l.logFile, l.echo.Addr().(*net.TCPAddr).Port), 0o600); err != nil {
		t.Fatal(err)
	}
	l.cluster, err = h.StartControlPlane(t.Context(), harness.ControlPlaneConfig{
		Name: "live", Workloads: true,
		Kubelet: config,
	})
	if err != nil {
		t.Fatal(err)
	}
	l.direct = l.cluster.Kubeconfig
	l.serveHub(openAccess(), openAccess())
	return l
}

// serveEcho answers each connection with what it sends.
func (l *liveSpoke) serveEcho() {
	l.t.Helper()
	var err error
	if l.echo, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		l.t.Fatal(err)
	}
	l.t.Cleanup(func() { _ = l.echo.Close() })
	go func() {
		for {
			conn, err := l.echo.Accept()
			if err != nil {
				return
			}
			go func() {
				defer func() { _ = conn.Close() }()
				_, _ = io.Copy(conn, conn)
			}()
		}
	}()
}

// serveHub starts hub and spoke with these rules; url is the hub's.
func (l *liveSpoke) serveHub(hubAccess, spokeAccess access.Config) {
	t := l.t
	t.Helper()
	hubPolicy, err := access.New(access.Hub, hubAccess)
	if err != nil {
		t.Fatal(err)
	}
	spokePolicy, err := access.New(access.Spoke, spokeAccess)
	if err != nil {
		t.Fatal(err)
	}
	metrics := prometheus.NewRegistry()
	tracer := noop.NewTracerProvider().Tracer("")
	live, err := spoke.New(spoke.Config{
		REST: l.cluster.REST(), Policy: spokePolicy, Tracer: tracer, Metrics: metrics, Log: zerolog.Nop(),
	})
	if err != nil {
		t.Fatal(err)
	}
	log, err := audit.New(audit.Config{Process: "e2e", Writer: l, Metrics: metrics, Log: zerolog.Nop()})
	if err != nil {
		t.Fatal(err)
	}
	replies, err := replies.New(replies.Config{Metrics: metrics, Log: zerolog.Nop()})
	if err != nil {
		t.Fatal(err)
	}
	hub, err := resource.NewHub(resource.HubConfig{
		Dial: l.dialer(live), Tokens: l, Agents: oneAgent{hubPolicy}, Audit: log, Replies: replies,
		Tracer: tracer, Metrics: metrics, Log: zerolog.Nop(), DrainTimeout: 100 * time.Millisecond,
	})
	if err != nil {
		t.Fatal(err)
	}
	plain, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	issued := httptest.NewUnstartedServer(nil)
	issued.StartTLS()
	front := &tls.Config{Certificates: issued.TLS.Certificates, MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"}}
	issued.Close()
	l.url = "https://" + plain.Addr().String() + "/agents/edge-1"
	t.Cleanup(l.cut)
	kit.Background(t, log.Run)
	kit.Background(t, func(ctx context.Context) error { return hub.Run(ctx, tls.NewListener(plain, front)) })
}

// oneAgent is a registry with edge-1.
type oneAgent struct{ policy *access.Policy }

// Target implements resource.Registry.
func (o oneAgent) Target(name identity.AgentName) (resource.Target, error) {
	if name.String() != "edge-1" {
		return resource.Target{}, identity.ErrDenied
	}
	return resource.Target{UID: "1", Policy: o.policy}, nil
}

// Changed implements resource.Registry: it never does.
func (oneAgent) Changed() <-chan struct{} { return nil }

// dialer gives connections to the spoke over loopback.
func (l *liveSpoke) dialer(live *spoke.Spoke) func(context.Context, identity.AgentName) (net.Conn, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		l.t.Fatal(err)
	}
	l.t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			l.mu.Lock()
			l.tunnels = append(l.tunnels, conn)
			l.mu.Unlock()
			go func() {
				if live.Serve(context.Background(), conn) != nil {
					_ = conn.(*net.TCPConn).SetLinger(0)
				}
				_ = conn.Close()
			}()
		}
	}()
	return func(ctx context.Context, _ identity.AgentName) (net.Conn, error) {
		if l.away.Load() {
			return nil, stream.ErrNotConnected
		}
		var d net.Dialer
		return d.DialContext(ctx, "tcp", listener.Addr().String())
	}
}

// cut ends all connections to the spoke.
func (l *liveSpoke) cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range l.tunnels {
		_ = c.(*net.TCPConn).SetLinger(0)
		_ = c.Close()
	}
	l.tunnels = nil
}

// kubeconfig writes one for the agent at the hub.
func (l *liveSpoke) kubeconfig() string {
	l.t.Helper()
	config := clientcmdapi.NewConfig()
	config.Clusters["c"] = &clientcmdapi.Cluster{Server: l.url, InsecureSkipTLSVerify: true}
	config.AuthInfos["u"] = &clientcmdapi.AuthInfo{Token: liveToken}
	config.Contexts["x"] = &clientcmdapi.Context{Cluster: "c", AuthInfo: "u"}
	config.CurrentContext = "x"
	path := filepath.Join(l.t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*config, path); err != nil {
		l.t.Fatal(err)
	}
	return path
}

// rest is a client's configuration for the agent at the hub.
func (l *liveSpoke) rest() *rest.Config {
	return &rest.Config{
		Host: l.url, BearerToken: liveToken, TLSClientConfig: rest.TLSClientConfig{Insecure: true}, QPS: 500, Burst: 1000,
	}
}

// ran is what a run of kubectl gave.
type ran struct {
	out, errors string
	err         error
}

// kubectl runs kubectl with a kubeconfig, and input if it is not empty.
func (l *liveSpoke) kubectl(ctx context.Context, kubeconfig, input string, args ...string) ran {
	ctx, cancel := context.WithTimeout(ctx, env.Patience)
	defer cancel()
	cmd := l.command(ctx, kubeconfig, args...)
	cmd.WaitDelay = env.Patience
	if input != "" {
		cmd.Stdin = strings.NewReader(input)
	}
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	return ran{out.String(), errs.String(), err}
}

// command is kubectl with a home of its own, so that no discovery of another run is
// known to it.
func (l *liveSpoke) command(ctx context.Context, kubeconfig string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, l.tools, append([]string{"--kubeconfig", kubeconfig}, args...)...)
	home := filepath.Join(filepath.Dir(l.logFile), "home")
	if kubeconfig != l.direct {
		home = filepath.Dir(kubeconfig)
	}
	cmd.Env = append(os.Environ(), "HOME="+home, "KUBECACHEDIR="+filepath.Join(home, "cache"))
	return cmd
}
