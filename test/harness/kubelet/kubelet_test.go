//go:build linux

package kubelet

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/argomesh/argomesh/test/harness"
	"github.com/argomesh/argomesh/test/kit"
)

func TestMain(m *testing.M) {
	is, err := Main()
	if err != nil {
		panic(err)
	}
	if is {
		return
	}
	if len(os.Args) == 2 && os.Args[1] == listener {
		panic(answers(context.Background()))
	}
	m.Run()
}

// listener is the argument of this program as one of a pod that listens on all addresses of port 80.
const listener = "argomesh-listener"

func answers(ctx context.Context) error {
	l, err := listen(ctx, "tcp", ":80")
	if err != nil {
		return err
	}
	return accept(ctx, l, func(_ context.Context, from net.Conn) {
		_, err := io.WriteString(from, "of the pod itself")
		if err := errors.Join(err, from.Close()); err != nil {
			panic(err)
		}
	})
}

func TestNameOfImage(t *testing.T) {
	t.Parallel()
	for image, want := range map[string]string{
		"principal":                                   "principal",
		"registry.example/argomesh/agent":             "agent",
		"127.0.0.1:5000/argomesh/agentctl:0.1.0":      "agentctl",
		"registry.example:5000/envoy:1@sha256:0123ab": "envoy",
	} {
		if got := nameOfImage(image); got != want {
			t.Errorf("nameOfImage(%q) = %q, want %q", image, got, want)
		}
	}
}

func TestProgram(t *testing.T) {
	t.Parallel()
	p := &pod{node: &Node{cfg: Config{Programs: map[string]string{"redis": "/r", "argocd": "/a", "argocd-server": "/s"}}}}
	for _, tc := range []struct {
		image         string
		command, args []string
		file, as      string
		want          []string
	}{
		{image: "x/redis:8", args: []string{"--save", ""}, file: "/r", want: []string{"--save", ""}},
		{image: "x/argocd:v3", command: []string{"argocd", "admin"}, args: []string{"x"}, file: "/a", want: []string{"admin", "x"}},
		{image: "x/argocd:v3", args: []string{"/usr/local/bin/argocd-server", "--redis=y"}, file: "/s", as: "argocd-server", want: []string{"--redis=y"}},
		{image: "x/argocd:v3", command: []string{"/usr/bin/tini", "--", "/usr/local/bin/argocd-server"}, args: []string{"--redis=y"}, file: "/s", as: "argocd-server",
			want: []string{"--redis=y"}},
	} {
		file, as, args, err := p.program(&corev1.Container{Image: tc.image, Command: tc.command, Args: tc.args})
		if err != nil || file != tc.file || as != tc.as || !slices.Equal(args, tc.want) {
			t.Errorf("%+v runs %s as %q with %q, %v", tc, file, as, args, err)
		}
	}
	for _, none := range []corev1.Container{{Image: "other"}, {Image: "argocd", Command: []string{"sh", "-c", "x"}}} {
		if file, _, _, err := p.program(&none); err == nil {
			t.Errorf("%+v runs %s", none, file)
		}
	}
}

// Of an optional object a key that a volume names may be missing, as with a kubelet.
func TestChosen(t *testing.T) {
	t.Parallel()
	data, items, optional := map[string][]byte{"a": []byte("1")}, []corev1.KeyToPath{{Key: "a", Path: "x"}, {Key: "b", Path: "y"}}, true
	if files, err := chosen(data, items, &optional, "it"); err != nil || len(files) != 1 || string(files["x"]) != "1" {
		t.Errorf("%q, %v", files, err)
	}
	if files, err := chosen(data, items, nil, "it"); err == nil {
		t.Errorf("without key b there is %q", files)
	}
}

func TestExpand(t *testing.T) {
	t.Parallel()
	values := map[string]string{"A": "1", "B_C": "2"}
	for text, want := range map[string]string{
		"--x=$(A)$(B_C)": "--x=12",
		"$(NONE)":        "$(NONE)",
		"$$(A)":          "$(A)",
		"$A ${A}":        "$A ${A}",
	} {
		if got := expand(text, values); got != want {
			t.Errorf("expand(%q) = %q, want %q", text, got, want)
		}
	}
}

func TestFieldOf(t *testing.T) {
	t.Parallel()
	is := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", Labels: map[string]string{"a/b": "c"}}, Status: corev1.PodStatus{PodIP: "10.0.0.1"}}
	for path, want := range map[string]string{"metadata.name": "p", "metadata.labels['a/b']": "c", "status.podIP": "10.0.0.1"} {
		if got, err := fieldOf(is, path); err != nil || got != want {
			t.Errorf("fieldOf(%s) = %q, %v, want %q", path, got, err, want)
		}
	}
	if got, err := fieldOf(is, "status.phase"); err == nil {
		t.Errorf("fieldOf(status.phase) = %q", got)
	}
}

// A program finds its files where they are mounted, has a network of its own, with a way out and one in, which do not take
// the ports of programs, and ends with the pod.
func TestPodRuns(t *testing.T) {
	t.Parallel()
	if err := Supported(t.Context()); err != nil {
		t.Skip(err)
	}
	dir, err := os.MkdirTemp("", "pod") // short, for the sockets
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	config, out := filepath.Join(dir, "config"), filepath.Join(dir, "out")
	for _, d := range []string{config, out} {
		if err := os.Mkdir(d, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(config, "name"), []byte("of the pod"), 0o600); err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	const service, own = "10.96.0.7:80", "10.0.0.5"
	s := spec{
		Hostname: "pod-1", Address: own, Hosts: "10.96.0.7 service\n", Listen: []string{service}, Out: filepath.Join(dir, "out.sock"), In: filepath.Join(dir, "in.sock"),
		Init: []container{{
			Name: "init", Program: "/bin/sh", Root: filepath.Join(dir, "init"), Env: []string{"PATH=/usr/bin:/bin"},
			Args: []string{"-c", "cat /etc/pod/name >/out/init"}, Mounts: []mount{{config, "/etc/pod"}, {out, "/out"}},
		}},
	}
	all := containers{Are: []container{{
		Name: "main", Program: "/bin/sh", Root: filepath.Join(dir, "main"), Env: []string{"PATH=/usr/bin:/bin", "X=y"},
		Args:   []string{"-c", `test ! -e /etc/pod && test -s /out/init && echo "$X $(hostname) $0" >/out/made && mv /out/made /out/main; exec sleep 600`},
		Mounts: []mount{{out, "/out"}}, As: "called-so",
	}, {
		Name: "listener", Program: self, Root: filepath.Join(dir, "listener"), Args: []string{listener},
	}}}
	// What leads out tells its containers, at the second time, and which address it was asked for.
	l, err := listen(t.Context(), "unix", s.Out)
	if err != nil {
		t.Fatal(err)
	}
	var asked atomic.Int32
	kit.Background(t, func(ctx context.Context) error {
		return accept(ctx, l, func(_ context.Context, from net.Conn) {
			line, err := bufio.NewReader(from).ReadString('\n')
			switch {
			case err != nil:
			case line != containersPlease+"\n":
				_, err = fmt.Fprintf(from, "asked for %s", line)
			case asked.Add(1) == 1:
				err = json.NewEncoder(from).Encode(containers{Why: "of this test"})
			default:
				err = json.NewEncoder(from).Encode(all)
			}
			if err := errors.Join(err, from.Close()); err != nil {
				t.Error(err)
			}
		})
	})
	content, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "pod.json")
	if err := os.WriteFile(file, content, 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), self, argument, file)
	var log strings.Builder
	cmd.Stdout, cmd.Stderr, cmd.SysProcAttr = &log, &log, harness.Isolated()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	kit.EventuallyNil(t, "the program writes", func() error {
		got, err := os.ReadFile(filepath.Join(out, "main"))
		if err == nil && string(got) != "y pod-1 called-so\n" {
			err = fmt.Errorf("it wrote %q", got)
		}
		return err
	})
	if got, err := os.ReadFile(filepath.Join(out, "init")); err != nil || string(got) != "of the pod" {
		t.Errorf("the init container wrote %q, %v", got, err)
	}
	// In by a socket, to the Service, and out by the other one.
	dial := func(address, want string) error {
		var dialer net.Dialer
		in, err := dialer.DialContext(t.Context(), "unix", s.In)
		if err != nil {
			return err
		}
		defer func() { _ = in.Close() }() // read to its end
		if _, err := fmt.Fprintf(in, "%s\n", address); err != nil {
			return err
		}
		if answer, err := io.ReadAll(in); err != nil || string(answer) != want {
			return fmt.Errorf("%s says %q, %w", address, answer, err)
		}
		return nil
	}
	if err := dial(service, "asked for "+service+"\n"); err != nil {
		t.Error(err)
	}
	kit.EventuallyNil(t, "a program of the pod listens on all addresses of a port that the Service has, too", func() error {
		return dial(own+":80", "of the pod itself")
	})
	if err := dial("10.96.0.8:80", ""); err != nil {
		t.Errorf("an address that nothing has: %v", err)
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err != nil {
		t.Errorf("it ends with %v\n%s", err, log.String())
	}
}
