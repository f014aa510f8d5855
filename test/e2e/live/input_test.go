//go:build linux

package live

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cri-streaming/pkg/streaming/remotecommand"
	utilexec "k8s.io/utils/exec"

	"github.com/argomesh/argomesh/test/e2e/internal/env"
)

// kubelet is a node's end of exec, with Kubernetes' own code for its protocols. Unlike
// kwok it tells a command that its input has ended. Only the commands of the test run.
type kubelet struct{}

// ServeHTTP serves /exec/<namespace>/<pod>/<container>.
func (k kubelet) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	options, err := remotecommand.NewOptions(r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	remotecommand.ServeExec(w, r, k, "", "", "", r.URL.Query()["command"], options, time.Minute, 10*time.Second, remotecommand.SupportedStreamingProtocols)
}

// ExecInContainer implements remotecommand.Executor.
func (kubelet) ExecInContainer(ctx context.Context, _, _, _ string, command []string, in io.Reader, out, complaint io.WriteCloser, _ bool, _ <-chan remotecommand.TerminalSize, _ time.Duration) error {
	if !slices.Contains([]string{"sha256sum", "tar", "test"}, command[0]) {
		return fmt.Errorf("there is no %s", command[0])
	}
	cmd := exec.CommandContext(ctx, command[0], command[1:]...) //nolint:gosec // one of three
	cmd.Stdin, cmd.Stdout, cmd.Stderr = in, out, complaint
	err := cmd.Run() // once the input has ended
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return utilexec.CodeExitError{Err: err, Code: exit.ExitCode()}
	}
	return err
}

// startInputPod makes a pod on a node of its own, whose kubelet is a kubelet.
func startInputPod(t *testing.T, a *env.LiveAgent, name string) {
	t.Helper()
	server := httptest.NewTLSServer(kubelet{})
	t.Cleanup(server.Close)
	host, port, err := net.SplitHostPort(server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	number, err := strconv.ParseInt(port, 10, 32)
	if err != nil {
		t.Fatal(err)
	}
	ctx, core := t.Context(), a.Direct(t).Clients().CoreV1()
	node, err := core.Nodes().Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	node.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: host}}
	node.Status.DaemonEndpoints.KubeletEndpoint.Port = int32(number)
	if _, err := core.Nodes().UpdateStatus(ctx, node, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	// No controller makes it here.
	if _, err := core.ServiceAccounts("default").Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}}, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
	if _, err := core.Pods("default").Create(ctx, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PodSpec{
			NodeName: name, AutomountServiceAccountToken: new(bool),
			Containers: []corev1.Container{{Name: env.LiveContainer, Image: "registry.invalid/input:1", Stdin: true}},
		},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// The end of what someone says in a container reaches it, and what it says after that
// comes back: one direction of a session ends by itself. Without it `kubectl cp` into
// a container would wait for ever.
func TestLiveInputEnds(t *testing.T) {
	t.Parallel()
	w := env.SharedLive(t)
	a := w.Agents[env.Autonomous]
	const pod = "input"
	startInputPod(t, a, pod)
	content := make([]byte, 16<<20)
	if _, err := rand.Read(content); err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(content)
	for protocol, webSockets := range map[string]bool{"websocket": true, "spdy": false} {
		t.Run(protocol, func(t *testing.T) {
			t.Parallel()
			kubectl := podVerbs{Caller: a.Caller(t), webSockets: webSockets}.in(t).kubectl
			t.Run("exec", func(t *testing.T) {
				cmd := kubectl("exec", "-i", pod, "--", "sha256sum")
				var out, complaint bytes.Buffer
				cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(content), &out, &complaint
				if err := cmd.Run(); err != nil {
					t.Fatalf("%v: %s", err, &complaint)
				}
				if want := hex.EncodeToString(sum[:]) + "  -\n"; out.String() != want {
					t.Errorf("the sum is %q, want %q", &out, want)
				}
			})
			t.Run("exit code", func(t *testing.T) {
				err := kubectl("exec", pod, "--", "test", "-d", "/nowhere/at/all").Run()
				var exit *exec.ExitError
				if !errors.As(err, &exit) || exit.ExitCode() != 1 {
					t.Errorf("kubectl exec: %v", err)
				}
			})
			t.Run("copy", func(t *testing.T) {
				// The container's files are those of this machine.
				outside, inside := t.TempDir(), t.TempDir()
				if err := os.WriteFile(filepath.Join(outside, "large"), content, 0o600); err != nil {
					t.Fatal(err)
				}
				if out, err := kubectl("cp", filepath.Join(outside, "large"), pod+":"+filepath.Join(inside, "copied")).CombinedOutput(); err != nil {
					t.Fatalf("kubectl cp: %v: %s", err, out)
				}
				got, err := os.ReadFile(filepath.Join(inside, "copied"))
				if err != nil || !bytes.Equal(got, content) {
					t.Errorf("%d bytes of %d came, or changed: %v", len(got), len(content), err)
				}
			})
			w.Recorded(t, env.Autonomous, map[string]any{
				"subresource": "exec", "name": pod, "upgrade": map[bool]string{true: "websocket", false: "SPDY/3.1"}[webSockets],
				"stage": "end", "result": "complete",
			})
		})
	}
}
