//go:build linux

package live

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/argomesh/argomesh/test/e2e/internal/env"
	"github.com/argomesh/argomesh/test/harness"
)

// What kubectl says of a spoke through the hub is what it says to anyone who stands
// beside that spoke's API server, errors included.
func TestLiveKubectl(t *testing.T) {
	t.Parallel()
	w := env.SharedLive(t)
	for _, name := range []string{env.Managed, env.Autonomous} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := w.Agents[name]
			l := liveVerbs{Caller: a.Caller(t), direct: a.Direct(t), namespace: "verbs"}
			l.direct.Run("", "create", "namespace", l.namespace)
			l.Run("", "config", "set-context", "--current", "--namespace", l.namespace)
			// Not the one that all others use.
			l.direct.Kubeconfig = filepath.Join(l.direct.Folder, "kubeconfig")
			if err := harness.WriteKubeconfig(l.direct.Kubeconfig, l.direct.Config); err != nil {
				t.Fatal(err)
			}
			l.direct.Run("", "config", "set-context", "--current", "--namespace", l.namespace)
			t.Run("read", l.read)
			t.Run("watch", l.watch)
			t.Run("change", l.change)
			t.Run("apply", l.apply)
			t.Run("refusals of the api server", l.failures)
			t.Run("what there is", l.discovery)
			t.Run("large", l.large)
		})
	}
}

// liveVerbs is one namespace of a spoke, seen through the hub and directly.
type liveVerbs struct {
	*env.Caller
	direct    *env.Caller
	namespace string
}

// in returns l in a subtest.
func (l liveVerbs) in(t *testing.T) liveVerbs {
	through, direct := *l.Caller, *l.direct
	through.T, direct.T = t, t
	return liveVerbs{&through, &direct, l.namespace}
}

// same runs kubectl both ways, and returns what it said both times.
func (l liveVerbs) same(input string, args ...string) env.LogSays {
	l.T.Helper()
	direct, through := l.direct.Try(input, args...), l.Try(input, args...)
	if diff := cmp.Diff(direct, through); diff != "" {
		l.T.Errorf("kubectl %s (-direct +through the hub)\n%s", strings.Join(args, " "), diff)
	}
	return through
}

const twoConfigMaps = `apiVersion: v1
kind: ConfigMap
metadata: {name: first, labels: {of: two}}
data: {key: value}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: second, labels: {of: two}}
data: {key: value, other: value}
`

func (l liveVerbs) read(t *testing.T) {
	l = l.in(t)
	l.Run(twoConfigMaps, "create", "-f", "-")
	for _, args := range [][]string{
		{"get", "configmaps", "-o", "json"},
		{"get", "configmap", "first", "-o", "yaml"},
		{"get", "configmaps", "-l", "of=two", "--chunk-size=1", "-o", "name"},
		{"get", "--raw", "/api/v1/namespaces/" + l.namespace + "/configmaps/first"},
		{"describe", "configmap", "second"},
		{"auth", "can-i", "list", "configmaps"},
		{"get", "--raw", "/readyz"},
	} {
		if s := l.same("", args...); s.Code != 0 || s.Out == "" {
			t.Errorf("kubectl %s: %+v", strings.Join(args, " "), s)
		}
	}
	// A table, which only kubectl and argocd-server ask for. Its ages may differ.
	table := func(c *env.Caller) []string {
		var columns []string
		for line := range strings.Lines(c.Run("", "get", "configmaps", "-l", "of=two")) {
			fields := strings.Fields(line)
			columns = append(columns, strings.Join(fields[:2], " "))
		}
		return columns
	}
	want := []string{"NAME DATA", "first 1", "second 2"}
	if got := table(l.Caller); !cmp.Equal(want, got) {
		t.Errorf("the table is %q, want %q", got, want)
	}
}

func (l liveVerbs) watch(t *testing.T) {
	l = l.in(t)
	cmd := l.Command("get", "configmaps", "--watch-only", "--output-watch-events")
	cmd.Stderr = os.Stderr // says why it ends
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	// It says nothing before the first event, so the request for it is waited for.
	started := begun(t, l.Caller, map[string]any{"verb": "watch", "resource": "configmaps", "namespace": l.namespace})
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	f := env.NewFollower(t, "kubectl get --watch", out, func() { _ = cmd.Process.Kill() })
	started()
	l.Run("", "create", "configmap", "watched")
	f.Until(t, "ADDED")
	l.Run("", "annotate", "configmap", "watched", "a=b")
	f.Until(t, "MODIFIED")
	l.Run("", "delete", "configmap", "watched")
	f.Until(t, "DELETED")
}

// begun returns what waits until one more long call with these fields in its record has
// begun.
func begun(t *testing.T, c *env.Caller, want map[string]any) (wait func()) {
	t.Helper()
	w := c.Agent.Env
	opened := func() (int, error) {
		records, err := w.Audited(c.Agent.Name, func(r map[string]any) bool {
			for key, value := range want {
				if r[key] != value {
					return false
				}
			}
			return r["stage"] == "open"
		})
		return len(records), err
	}
	before, err := opened()
	if err != nil {
		t.Fatal(err)
	}
	return func() {
		t.Helper()
		env.Eventually(t, fmt.Sprint("a call has begun with ", want), func() error {
			now, err := opened()
			if err == nil && now <= before {
				err = fmt.Errorf("there are %d of them, as before", now)
			}
			return err
		})
	}
}

func (l liveVerbs) change(t *testing.T) {
	l = l.in(t)
	value := func(want string) {
		t.Helper()
		if got := l.direct.Run("", "get", "configmap", "changed", "-o", "jsonpath={.data.key}"); got != want {
			t.Errorf("the spoke has %q, want %q", got, want)
		}
	}
	l.Run("", "create", "configmap", "changed", "--from-literal=key=created")
	value("created")
	l.Run(strings.ReplaceAll(l.Run("", "get", "configmap", "changed", "-o", "json"), "created", "replaced"), "replace", "-f", "-")
	value("replaced")
	l.Run("", "patch", "configmap", "changed", "--type=merge", "-p", `{"data":{"key":"merged"}}`)
	value("merged")
	l.Run("", "patch", "configmap", "changed", "--type=strategic", "-p", `{"data":{"key":"strategic"}}`)
	value("strategic")
	l.Run("", "patch", "configmap", "changed", "--type=json", "-p", `[{"op":"replace","path":"/data/key","value":"json"}]`)
	value("json")
	l.Run("", "create", "secret", "generic", "changed", "--from-literal=a=b")
	l.Run("", "delete", "secret", "changed")
	l.Run("", "delete", "configmap", "changed")
	l.direct.Refused("", []string{"NotFound"}, "get", "configmap", "changed")
	l.Run("", "create", "configmap", "changed-too")
	l.Run("", "delete", "configmaps", "--all", "--wait=false")
	if got := l.direct.Run("", "get", "configmaps", "-o", "name", "--field-selector", "metadata.name!=kube-root-ca.crt"); got != "" {
		t.Errorf("after the deletion of all there are %s", got)
	}
}

const applied = `apiVersion: v1
kind: ConfigMap
metadata: {name: applied}
data: {key: %s}
`

func (l liveVerbs) apply(t *testing.T) {
	l = l.in(t)
	one, two := fmt.Sprintf(applied, "one"), fmt.Sprintf(applied, "two")
	l.Run(one, "apply", "--server-side", "--field-manager=first", "-f", "-")
	// A conflict says who has the field, and is an answer of 409.
	s := l.same(two, "apply", "--server-side", "--field-manager=second", "-f", "-")
	if s.Code == 0 || !strings.Contains(s.Err, `conflict with "first": .data.key`) {
		t.Errorf("a conflict is %+v", s)
	}
	l.Agent.Env.Recorded(t, l.Agent.Name, map[string]any{
		"verb": "patch", "resource": "configmaps", "namespace": l.namespace, "name": "applied", "status": 409, "decision": "allow",
	})
	l.Run(two, "apply", "--server-side", "--field-manager=second", "--force-conflicts", "-f", "-")
	l.Run(one, "apply", "-f", "-") // as a client does it
	l.Run("", "delete", "configmap", "applied")
}

func (l liveVerbs) failures(t *testing.T) {
	l = l.in(t)
	l.Run("", "create", "configmap", "taken")
	stale := l.Run("", "get", "configmap", "taken", "-o", "json")
	l.Run("", "annotate", "configmap", "taken", "a=b")
	const impossible = `apiVersion: apps/v1
kind: Deployment
metadata: {name: impossible}
spec: {replicas: -1, selector: {matchLabels: {a: b}}, template: {metadata: {labels: {a: c}}, spec: {containers: [{name: "Not A Name", image: x}]}}}
`
	for name, c := range map[string]struct {
		input, says string
		args        []string
	}{
		"what exists (409)":     {"", "already exists", []string{"create", "configmap", "taken"}},
		"what is stale (409)":   {stale, "the object has been modified", []string{"replace", "-f", "-"}},
		"what is invalid (422)": {impossible, "is invalid", []string{"create", "-f", "-"}},
		"what is unknown (400)": {strings.Replace(impossible, "replicas:", "replicaz:", 1), "unknown field", []string{"create", "--validate=strict", "-f", "-"}},
		"what is absent (404)":  {"", "NotFound", []string{"get", "configmap", "absent"}},
		"what is no kind (404)": {"", "resource type", []string{"get", "nonsense"}},
		"what has no namespace": {"", "not found", []string{"create", "configmap", "x", "--namespace", "nowhere"}},
	} {
		t.Run(name, func(t *testing.T) {
			if s := l.in(t).same(c.input, c.args...); s.Code == 0 || !strings.Contains(s.Err, c.says) {
				t.Errorf("kubectl %s says %+v, want %q", strings.Join(c.args, " "), s, c.says)
			}
		})
	}
}

func (l liveVerbs) discovery(t *testing.T) {
	l = l.in(t)
	for _, args := range [][]string{
		{"api-resources", "--sort-by=name"},
		{"api-versions"},
		{"version", "-o", "json"},
		{"explain", "deployment.spec.strategy"},
		{"explain", "applications.spec", "--api-version=argoproj.io/v1alpha1"},
		{"get", "--raw", "/openapi/v3"},
		{"get", "--raw", "/openapi/v2"},
	} {
		if s := l.same("", args...); s.Code != 0 || s.Out == "" {
			t.Errorf("kubectl %s: exit code %d, %d bytes: %s", strings.Join(args, " "), s.Code, len(s.Out), s.Err)
		}
	}
}

// large lists 50 MiB, the same bytes as from the API server itself.
func (l liveVerbs) large(t *testing.T) {
	l = l.in(t)
	const each, n = 900 << 10, 57
	maps := l.direct.Clients().CoreV1().ConfigMaps(l.namespace)
	for i := range n {
		if _, err := maps.Create(t.Context(), &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("large-", i), Labels: map[string]string{"large": "true"}},
			Data:       map[string]string{"key": strings.Repeat("x", each)},
		}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		if err := maps.DeleteCollection(context.WithoutCancel(t.Context()), metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: "large=true"}); err != nil {
			t.Error(err)
		}
	})
	path := "/api/v1/namespaces/" + l.namespace + "/configmaps?labelSelector=large%3Dtrue"
	got, err := env.FetchOne(t.Context(), l.Config, path)
	if err != nil {
		t.Fatal(err)
	}
	var list metav1.PartialObjectMetadataList
	if err := json.Unmarshal(got.Body, &list); err != nil || len(list.Items) != n {
		t.Errorf("%d objects came: %v", len(list.Items), err)
	}
	want, err := env.FetchOne(t.Context(), l.direct.Config, path+"&resourceVersionMatch=Exact&resourceVersion="+list.ResourceVersion)
	if err != nil {
		t.Fatal(err)
	}
	if len(got.Body) < 50<<20 || !bytes.Equal(got.Body, want.Body) {
		t.Errorf("%d bytes came, %d were sent", len(got.Body), len(want.Body))
	}
}
