//go:build linux

package live

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/remotecommand"

	"github.com/argomesh/argomesh/proxies/access"
	"github.com/argomesh/argomesh/proxies/audit"
	"github.com/argomesh/argomesh/test/e2e/internal/env"
	"github.com/argomesh/argomesh/test/harness"
)

// TestResourceProxy drives a real API server through both ends of the resource proxy
// with kubectl and client-go.
func TestResourceProxy(t *testing.T) {
	t.Parallel()
	l := startLiveSpoke(t)
	k := l.kubeconfig()
	client, err := kubernetes.NewForConfig(l.rest())
	if err != nil {
		t.Fatal(err)
	}
	// ok runs kubectl through the proxy, which must succeed.
	ok := func(t *testing.T, input string, args ...string) string {
		t.Helper()
		r := l.kubectl(t.Context(), k, input, args...)
		if r.err != nil {
			t.Fatalf("kubectl %v: %v\n%s%s", args, r.err, r.out, r.errors)
		}
		return r.out
	}
	if err := l.cluster.EnsureNamespace(t.Context(), "web"); err != nil {
		t.Fatal(err)
	}

	t.Run("reads", func(t *testing.T) {
		for _, args := range [][]string{
			{"get", "namespaces"}, {"get", "namespace", "web", "-o", "yaml"}, {"get", "namespaces", "-o", "json"}, {"get", "nodes", "-o", "wide"},
			{"get", "all,configmaps", "-A"}, {"get", "--raw", "/version"}, {"get", "--raw", "/openapi/v3"}, {"get", "--raw", "/apis"}, {"get", "--raw", "/openapi/v3/apis/apps/v1?hash=OLD"},
			{"get", "--raw", "/api/v1/namespaces?limit=2"}, {"api-resources"}, {"api-versions"}, {"explain", "deployment.spec.template"},
			{"auth", "can-i", "--list"}, {"describe", "namespace", "web"},
		} {
			through, direct := ok(t, "", args...), l.kubectl(t.Context(), l.direct, "", args...)
			if direct.err != nil {
				t.Fatalf("kubectl %v, direct: %v %s", args, direct.err, direct.errors)
			}
			if diff := cmp.Diff(ageless(direct.out), ageless(through)); diff != "" {
				t.Errorf("kubectl %v (-direct +through)\n%s", args, diff)
			}
		}
	})

	t.Run("writes", func(t *testing.T) {
		const first = `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"shop"},"data":{"a":"1"}}`
		ok(t, first, "create", "-n", "web", "-f", "-")
		again := l.kubectl(t.Context(), k, first, "create", "-n", "web", "-f", "-")
		if again.err == nil || !strings.Contains(again.errors, "AlreadyExists") {
			t.Errorf("create again: %v %s", again.err, again.errors)
		}
		ok(t, strings.ReplaceAll(first, `"1"`, `"2"`), "replace", "-n", "web", "-f", "-")
		for kind, patch := range map[string]string{
			"strategic": `{"data":{"strategic":"x"}}`, "merge": `{"data":{"merge":"x"}}`, "json": `[{"op":"add","path":"/data/json","value":"x"}]`,
		} {
			ok(t, "", "patch", "configmap", "shop", "-n", "web", "--type", kind, "-p", patch)
		}
		got, err := client.CoreV1().ConfigMaps("web").Get(t.Context(), "shop", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(map[string]string{"a": "2", "strategic": "x", "merge": "x", "json": "x"}, got.Data); diff != "" {
			t.Errorf("data (-want +got)\n%s", diff)
		}

		applied := strings.ReplaceAll(first, `"name":"shop"`, `"name":"applied"`)
		ok(t, applied, "apply", "-n", "web", "--server-side", "--field-manager=one", "-f", "-")
		conflict := l.kubectl(t.Context(), k, strings.ReplaceAll(applied, `"1"`, `"3"`), "apply", "-n", "web", "--server-side", "--field-manager=two", "-f", "-")
		if conflict.err == nil || !strings.Contains(conflict.errors, "conflict with \"one\"") {
			t.Errorf("server-side apply over another manager: %v %s", conflict.err, conflict.errors)
		}
		ok(t, strings.ReplaceAll(applied, `"1"`, `"3"`), "apply", "-n", "web", "--server-side", "--force-conflicts", "--field-manager=two", "-f", "-")

		stale := got.DeepCopy()
		got.Data["a"] = "4"
		if _, err := client.CoreV1().ConfigMaps("web").Update(t.Context(), got, metav1.UpdateOptions{}); err != nil {
			t.Error(err)
		}
		if _, err := client.CoreV1().ConfigMaps("web").Update(t.Context(), stale, metav1.UpdateOptions{}); !apierrors.IsConflict(err) {
			t.Errorf("update of what is stale: %v", err)
		}
		invalid := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "Not A Name"}}
		_, err = client.CoreV1().ConfigMaps("web").Create(t.Context(), invalid, metav1.CreateOptions{})
		var said apierrors.APIStatus
		if !apierrors.IsInvalid(err) || !errors.As(err, &said) || len(said.Status().Details.Causes) == 0 {
			t.Errorf("create of what is invalid: %v", err)
		}
		ok(t, "", "delete", "configmap", "shop", "-n", "web")
		if _, err := client.CoreV1().ConfigMaps("web").Get(t.Context(), "shop", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			t.Errorf("after its deletion: %v", err)
		}
		ok(t, "", "delete", "configmaps", "-n", "web", "--all")
	})

	t.Run("watch", func(t *testing.T) {
		w, err := client.CoreV1().ConfigMaps("web").Watch(t.Context(), metav1.ListOptions{FieldSelector: "metadata.name=seen"})
		if err != nil {
			t.Fatal(err)
		}
		defer w.Stop()
		// Written at the API server itself: it is the watch that shows it.
		direct, err := kubernetes.NewForConfig(l.cluster.REST())
		if err != nil {
			t.Fatal(err)
		}
		cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "seen"}, Data: map[string]string{"n": "0"}}
		if cm, err = direct.CoreV1().ConfigMaps("web").Create(t.Context(), cm, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		expect(t, w, watch.Added, "0")
		for n := range 3 {
			cm.Data["n"] = fmt.Sprint(n + 1)
			if cm, err = direct.CoreV1().ConfigMaps("web").Update(t.Context(), cm, metav1.UpdateOptions{}); err != nil {
				t.Fatal(err)
			}
			expect(t, w, watch.Modified, cm.Data["n"])
		}
		if err := direct.CoreV1().ConfigMaps("web").Delete(t.Context(), "seen", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		expect(t, w, watch.Deleted, "3")
	})

	t.Run("more than 20 MiB in one answer", func(t *testing.T) {
		block := make([]byte, 600<<10)
		if _, err := rand.Read(block); err != nil {
			t.Fatal(err)
		}
		const count = 30 // 600 KiB each, in base64 800
		for i := range count {
			cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("big-%d", i), Labels: map[string]string{"size": "big"}}, BinaryData: map[string][]byte{"b": block}}
			if _, err := client.CoreV1().ConfigMaps("web").Create(t.Context(), cm, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		text := ok(t, "", "get", "--raw", "/api/v1/namespaces/web/configmaps?labelSelector=size%3Dbig")
		var list corev1.ConfigMapList
		if err := json.Unmarshal([]byte(text), &list); err != nil {
			t.Fatal(err)
		}
		for _, cm := range list.Items {
			if !bytes.Equal(cm.BinaryData["b"], block) {
				t.Fatalf("%s is not what was stored", cm.Name)
			}
		}
		if len(list.Items) != count || len(text) < 20<<20 {
			t.Errorf("%d objects in %d bytes", len(list.Items), len(text))
		}
		if err := client.CoreV1().ConfigMaps("web").DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: "size=big"}); err != nil {
			t.Error(err)
		}
	})

	t.Run("pods", func(t *testing.T) { l.pods(t, k, client) })
	t.Run("refusals", func(t *testing.T) { l.refusals(t, k) })
	t.Run("audit", func(t *testing.T) {
		if text := l.audited(); strings.Contains(text, liveToken) || !strings.Contains(text, `"subresource":"exec"`) || !strings.Contains(text, `"verb":"patch"`) {
			t.Error("the records are not those of the calls, or hold a token")
		}
	})
	t.Run("away", func(t *testing.T) { l.isAway(t, k) })
}

// TestResourceProxyTracked restricts calls to what Argo CD tracks.
func TestResourceProxyTracked(t *testing.T) {
	t.Parallel()
	l := startLiveSpoke(t)
	direct, err := kubernetes.NewForConfig(l.cluster.REST())
	if err != nil {
		t.Fatal(err)
	}
	if err := l.cluster.EnsureNamespace(t.Context(), "web"); err != nil {
		t.Fatal(err)
	}
	put := func(name, tracking string, owners ...metav1.OwnerReference) *corev1.ConfigMap {
		t.Helper()
		cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, OwnerReferences: owners}}
		if tracking != "" {
			cm.Annotations = map[string]string{access.TrackingAnnotation: tracking}
		}
		made, err := direct.CoreV1().ConfigMaps("web").Create(t.Context(), cm, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return made
	}
	tracked := put("tracked", "shop:/ConfigMap:web/tracked")
	put("owned", "", metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: "tracked", UID: tracked.UID})
	put("plain", "")
	put("copied", "shop:/ConfigMap:web/tracked")

	only := openAccess()
	only.TrackedOnly = true
	for where, rules := range map[string][2]access.Config{"by the spoke": {openAccess(), only}, "by the hub": {only, openAccess()}} {
		t.Run(where, func(t *testing.T) {
			l.serveHub(rules[0], rules[1])
			client, err := kubernetes.NewForConfig(l.rest())
			if err != nil {
				t.Fatal(err)
			}
			maps := client.CoreV1().ConfigMaps("web")
			for name, allowed := range map[string]bool{"tracked": true, "owned": true, "plain": false, "copied": false} {
				_, err := maps.Get(t.Context(), name, metav1.GetOptions{})
				if allowed != (err == nil) || (!allowed && !apierrors.IsForbidden(err)) {
					t.Errorf("%s: %v", name, err)
				}
				_, err = maps.Patch(t.Context(), name, types.MergePatchType, []byte(`{"data":{"a":"b"}}`), metav1.PatchOptions{DryRun: []string{"All"}})
				if allowed != (err == nil) {
					t.Errorf("patch %s: %v", name, err)
				}
			}
			if _, err := maps.Get(t.Context(), "missing", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
				t.Errorf("what is not there: %v", err)
			}
			if _, err := maps.List(t.Context(), metav1.ListOptions{}); !apierrors.IsForbidden(err) {
				t.Errorf("a list: %v", err)
			}
			if _, err := client.Discovery().ServerVersion(); err != nil {
				t.Errorf("version: %v", err)
			}
		})
	}
}

// expect waits for the next event of a watch.
func expect(t *testing.T, w watch.Interface, kind watch.EventType, value string) {
	t.Helper()
	select {
	case event, open := <-w.ResultChan():
		cm, is := event.Object.(*corev1.ConfigMap)
		if !open || event.Type != kind || !is || cm.Data["n"] != value {
			t.Fatalf("event %v %v, want %s of %s", event.Type, event.Object, kind, value)
		}
	case <-time.After(env.Patience):
		t.Fatalf("no event %s of %s", kind, value)
	}
}

// ages are what differs between two runs.
var ages = regexp.MustCompile(`\b\d+[smh](\d+s)?\b|"resourceVersion":"\d+"|resourceVersion: "\d+"|"continue":"[^"]*"|"hash=[^"]*"|[ ]+`)

func ageless(text string) string { return ages.ReplaceAllString(text, "~") }

const podManifest = `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"shop"},"spec":{"containers":[{"name":"main","image":"registry.invalid/shop:1"}]}}`

// pods uses what has a kubelet behind it.
func (l *liveSpoke) pods(t *testing.T, k string, client *kubernetes.Clientset) {
	if err := harness.Eventually(t.Context(), "the service account of pods", func() error {
		_, err := client.CoreV1().ServiceAccounts("web").Get(t.Context(), "default", metav1.GetOptions{})
		return err
	}); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"create", "-n", "web", "-f", "-"}, {"wait", "-n", "web", "--for=condition=Ready", "pod/shop", "--timeout=" + env.Patience.String()}} {
		if r := l.kubectl(t.Context(), k, podManifest, args...); r.err != nil {
			t.Fatalf("kubectl %v: %v %s", args, r.err, r.errors)
		}
	}

	t.Run("logs", func(t *testing.T) { l.logs(t, k) })
	for _, protocol := range []string{"websocket", "spdy"} {
		t.Run("exec by "+protocol, func(t *testing.T) { l.exec(t, protocol) })
	}
	t.Run("port-forward", func(t *testing.T) { l.forward(t, k) })
}

// logs follows a log while it grows.
func (l *liveSpoke) logs(t *testing.T, k string) {
	grow := func(text string) {
		t.Helper()
		f, err := os.OpenFile(l.logFile, os.O_APPEND|os.O_WRONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := fmt.Fprintf(f, "%s stdout F %s\n", time.Now().UTC().Format(time.RFC3339Nano), text); err != nil {
			t.Fatal(err)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
	grow("line 0")
	if r := l.kubectl(t.Context(), k, "", "logs", "-n", "web", "shop"); r.err != nil || r.out != "line 0\n" {
		t.Errorf("logs: %v %q %s", r.err, r.out, r.errors)
	}
	ctx, cancel := context.WithTimeout(t.Context(), env.Patience)
	defer cancel()
	cmd := l.command(ctx, k, "logs", "-f", "-n", "web", "shop")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	for n := range 4 {
		if n > 0 {
			grow(fmt.Sprintf("line %d", n))
		}
		if !lines.Scan() || lines.Text() != fmt.Sprintf("line %d", n) {
			t.Fatalf("line %d: %q %v", n, lines.Text(), lines.Err())
		}
	}
	cancel()
	_ = cmd.Wait() // killed
}

// exec runs a command with input, output, errors and a code, by one protocol.
func (l *liveSpoke) exec(t *testing.T, protocol string) {
	for _, terminal := range []bool{false, true} {
		u, err := url.Parse(l.url + "/api/v1/namespaces/web/pods/shop/exec")
		if err != nil {
			t.Fatal(err)
		}
		query := url.Values{"container": {"main"}, "stdin": {"true"}, "stdout": {"true"}, "command": {"sh", "-c", "read line; echo got $line; read line; exit 5"}}
		if terminal {
			query.Set("tty", "true")
		}
		u.RawQuery = query.Encode()
		var executor remotecommand.Executor
		if protocol == "spdy" {
			executor, err = remotecommand.NewSPDYExecutor(l.rest(), http.MethodPost, u)
		} else {
			executor, err = remotecommand.NewWebSocketExecutor(l.rest(), http.MethodGet, u.String())
		}
		if err != nil {
			t.Fatal(err)
		}
		// The command ends once its output was seen: of a terminal kwok, without us too,
		// loses what comes last.
		stdin, typed := io.Pipe()
		out := &talk{answer: typed, until: "got hello"}
		go func() { _, _ = io.WriteString(typed, "hello\n") }()
		ctx, cancel := context.WithTimeout(t.Context(), env.Patience)
		err = executor.StreamWithContext(ctx, remotecommand.StreamOptions{Stdin: stdin, Stdout: out, Tty: terminal})
		cancel()
		_ = typed.Close()
		// kwok says how a command ended in words, not as a code.
		if !strings.Contains(out.text.String(), "got hello") || err == nil || !strings.Contains(err.Error(), "exit status 5") {
			t.Errorf("terminal %v: %q, %v", terminal, out.text.String(), err)
		}
	}
}

// talk answers once, with an empty line, when it has read a text.
type talk struct {
	text   bytes.Buffer
	answer io.Writer
	until  string
	done   bool
}

// Write implements io.Writer.
func (c *talk) Write(p []byte) (int, error) {
	c.text.Write(p)
	if !c.done && strings.Contains(c.text.String(), c.until) {
		c.done = true
		go func() { _, _ = io.WriteString(c.answer, "\n") }() // the reader may be gone
	}
	return len(p), nil
}

// forward forwards a port and speaks over it.
func (l *liveSpoke) forward(t *testing.T, k string) {
	ctx, cancel := context.WithTimeout(t.Context(), env.Patience)
	defer cancel()
	cmd := l.command(ctx, k, "port-forward", "--address", "127.0.0.1", "-n", "web", "pod/shop", ":80")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	var errs bytes.Buffer
	cmd.Stderr = &errs
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	if !lines.Scan() {
		t.Fatalf("port-forward says nothing: %s", errs.String())
	}
	address := strings.Fields(lines.Text())[2] // Forwarding from 127.0.0.1:1234 -> 80
	go func() {
		for lines.Scan() { // else it would wait to be read
		}
	}()
	for range 3 {
		conn, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		if err := conn.SetDeadline(time.Now().Add(env.Patience)); err != nil {
			t.Fatal(err)
		}
		sent := make([]byte, 2<<20)
		if _, err := rand.Read(sent); err != nil {
			t.Fatal(err)
		}
		wrote := make(chan error, 1)
		go func() { _, err := conn.Write(sent); wrote <- err }()
		got := make([]byte, len(sent))
		if _, err := io.ReadFull(conn, got); err != nil || !bytes.Equal(got, sent) {
			t.Errorf("what came back is not what was sent: %v", err)
		}
		if err := <-wrote; err != nil {
			t.Error(err)
		}
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
	}
	cancel()
	_ = cmd.Wait() // killed
}

// refusals are those of callers without a right.
func (l *liveSpoke) refusals(t *testing.T, k string) {
	if r := l.kubectl(t.Context(), k, "", "--token", "another", "get", "pods", "-n", "web"); r.err == nil || !strings.Contains(r.errors, "logged in") {
		t.Errorf("another token: %v %s", r.err, r.errors)
	}
	if r := l.kubectl(t.Context(), k, "", "--as", "admin", "get", "pods", "-n", "web"); r.err == nil || !strings.Contains(r.errors, "Forbidden") {
		t.Errorf("an impersonation: %v %s", r.err, r.errors)
	}
	other := rest.CopyConfig(l.rest())
	other.Host = strings.ReplaceAll(other.Host, "edge-1", "edge-2")
	client, err := kubernetes.NewForConfig(other)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.CoreV1().Pods("web").List(t.Context(), metav1.ListOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("the path of another agent: %v", err)
	}
	var narrow liveSpoke
	narrow.t, narrow.cluster, narrow.tools, narrow.logFile, narrow.direct = t, l.cluster, l.tools, l.logFile, l.direct
	narrow.serveHub(openAccess(), access.Config{Enabled: true})
	r := narrow.kubectl(t.Context(), narrow.kubeconfig(), "", "exec", "-n", "web", "shop", "--", "true")
	if r.err == nil || !strings.Contains(r.errors, "spoke") || !strings.Contains(r.errors, "exec") {
		t.Errorf("an exec that the spoke's owner has switched off: %v %s", r.err, r.errors)
	}
}

// isAway takes the spoke away: what it is made of is still known, and nothing else.
func (l *liveSpoke) isAway(t *testing.T, k string) {
	before := l.kubectl(t.Context(), k, "", "api-resources")
	if r := l.kubectl(t.Context(), k, "", "get", "--raw", "/version"); r.err != nil {
		t.Fatal(r.errors)
	}
	l.away.Store(true)
	l.cut()
	if err := os.RemoveAll(filepath.Join(filepath.Dir(k), "cache")); err != nil {
		t.Fatal(err)
	}
	after := l.kubectl(t.Context(), k, "", "api-resources")
	if after.err != nil || after.out != before.out || !strings.Contains(after.errors, "Warning: agent edge-1 is away: this is its last known reply") {
		t.Errorf("api-resources of a spoke that is away: %v\n%s\n%s", after.err, after.out, after.errors)
	}
	if r := l.kubectl(t.Context(), k, "", "get", "--raw", "/version"); r.err != nil || !strings.Contains(r.out, "gitVersion") {
		t.Errorf("version: %v %s", r.err, r.errors)
	}
	r := l.kubectl(t.Context(), k, "", "get", "pods", "-n", "web")
	if r.err == nil || !strings.Contains(r.errors, "agent edge-1 is not connected") {
		t.Errorf("pods: %v: %s%s", r.err, r.out, r.errors)
	}
	if !strings.Contains(l.audited(), `"answered_by":"`+string(audit.ByLastKnown)+`"`) {
		t.Error("no record says that the answer was the last known one")
	}
}
