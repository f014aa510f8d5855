//go:build linux

package live

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/argomesh/argomesh/test/e2e/internal/charts"
	"github.com/argomesh/argomesh/test/e2e/internal/env"
	"github.com/argomesh/argomesh/test/harness"
)

// tried is what a step of the connectivity test came to.
type tried struct{ Step, Outcome, Says, Cure string }

// connectivity runs agentctl connectivity test, and returns its steps by name.
func (w *liveArgoEnv) connectivity(t *testing.T, args ...string) (map[string]tried, error) {
	t.Helper()
	config, err := w.Agents[w.agent].Access(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	proxy, _, _ := strings.Cut(config.Host, "/agents/")
	args = append([]string{
		"connectivity", "test", w.agent, "-o", "json", "--resource-proxy", proxy, "--redis", w.redis, "--redis-ca", w.redisCA,
		"--port", strconv.Itoa(env.EchoPort), "--timeout", "30s",
	}, args...)
	out, failed := w.Harness.Agentctl(t.Context(), w.Hub, args...)
	var report struct{ Steps []tried }
	if err := json.Unmarshal([]byte(out), &report); err != nil {
		t.Fatalf("it prints %q: %v, %v", out, err, failed)
	}
	steps := map[string]tried{}
	for _, s := range report.Steps {
		steps[s.Step] = s
	}
	return steps, failed
}

// testConnectivity has agentctl try what people do, with all allowed, without writes, and while
// the agent is away; whatever it finds, nothing is left behind.
func (w *liveArgoEnv) testConnectivity(t *testing.T) {
	guard(t, w.Live)
	if err := w.Log.Say("argomesh-connectivity"); err != nil { // as the pod does, of which nothing runs
		t.Fatal(err)
	}
	env.Eventually(t, "the policy has settled", func() error {
		_, err := w.Harness.Agentctl(t.Context(), w.Hub, "kubeconfig", w.agent)
		return err
	})
	steps, err := w.connectivity(t)
	if err != nil {
		t.Errorf("with all allowed: %v", err)
	}
	for _, name := range []string{"token", "version", "watch", "large-object", "pod", "logs", "exec", "port-forward", "sync", "redis", "revocation", "clean-up"} {
		if s := steps[name]; s.Outcome != "ok" {
			t.Errorf("step %s: %+v", name, s)
		}
	}
	if says := steps["redis"].Says; !strings.Contains(says, "subscribed in") {
		t.Errorf("redis says %q", says)
	}
	w.nothingLeft(t)
	w.testDeployment(t)
	w.helmTest(t)

	agent := w.Agents[w.agent]
	if err := agent.Allow(t.Context(), map[string]any{"writes": false}); err != nil {
		t.Fatal(err)
	}
	env.Eventually(t, "a test without writes", func() error { // the change takes a moment
		steps, err := w.connectivity(t)
		if large := steps["large-object"]; large.Outcome != "skipped" || !strings.Contains(large.Says, `rule "writes"`) {
			return fmt.Errorf("large-object is %+v, %w", large, errors.Join(err))
		}
		if watch := steps["watch"]; err != nil || watch.Outcome != "ok" || !strings.Contains(watch.Says, "nothing may be written") ||
			steps["exec"].Says != "needs step pod" {
			return fmt.Errorf("they are %+v, %w", steps, errors.Join(err))
		}
		return nil
	})
	w.nothingLeft(t)
	if err := errors.Join(agent.Allow(t.Context(), env.Everything), agent.Process.Kill()); err != nil {
		t.Fatal(err)
	}
	steps, err = w.connectivity(t, "--skip", "sync")
	if s := steps["version"]; err == nil || s.Outcome != "failed" || !strings.Contains(s.Cure, "agentctl check spoke") || steps["watch"].Outcome != "skipped" {
		t.Errorf("while the agent is away: %v, %+v", err, steps)
	}
	w.nothingLeft(t)
	if err := errors.Join(agent.Process.Start(t.Context()), agent.Reachable(t.Context())); err != nil {
		t.Fatal(err)
	}
}

// helmTest does what the pod of helm test does, with its arguments and the rights of its account.
func (w *liveArgoEnv) helmTest(t *testing.T) {
	t.Helper()
	var args []string
	for _, o := range charts.RenderTest(t, charts.Principal, "") {
		if o.GetKind() == "Pod" {
			args = env.Convert[corev1.Pod](t, o).Spec.Containers[0].Args
			continue
		}
		if err := w.Hub.Apply(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	config, err := w.Agents[w.agent].Access(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	// What is elsewhere here: the proxy, the port of a pod, and the hub's API.
	proxy, _, _ := strings.Cut(config.Host, "/agents/")
	account := env.AccountConfig(t, w.Harness, w.Hub, harness.ArgoCDNamespace, charts.Principal+"-test")
	args = append(args, "--resource-proxy", proxy, "--port", strconv.Itoa(env.EchoPort), "--kubeconfig", account, "--timeout", "30s")
	env.Eventually(t, "helm test passes", func() error { // roles take effect a moment later
		out, err := w.Harness.Agentctl(t.Context(), w.Hub, args...)
		if err != nil || strings.Count(out, "ok ") != 10 || strings.Count(out, "skipped ") != 2 {
			err = fmt.Errorf("%s: %w", out, errors.Join(err, errors.New("10 steps are to pass, and 2 to be skipped")))
		}
		return err
	})
	record := w.Recorded(t, w.agent, map[string]any{"user": "system:serviceaccount:argocd:argomesh-principal-test", "subresource": "exec", "stage": "end"})
	if record["decision"] != "allow" {
		t.Errorf("the record of its exec is %v", record)
	}
	w.nothingLeft(t)
}

// testDeployment has step sync deploy something, until it is there, and take it away again.
func (w *liveArgoEnv) testDeployment(t *testing.T) {
	t.Helper()
	const namespace = "deployed"
	spoke := w.Spokes[w.agent]
	if err := spoke.EnsureNamespace(t.Context(), namespace); err != nil {
		t.Fatal(err)
	}
	steps, err := w.connectivity(t, "--spoke-namespace", namespace, "--repo-url", w.argo.Repository.URL, "--path", harness.GuestbookPath,
		"--revision", harness.Branch, "--timeout", "2m", "--skip", "watch,large-object,pod,redis,revocation")
	if s := steps["sync"]; err != nil || s.Outcome != "ok" || !strings.Contains(s.Says, "its status, Synced, came back") {
		t.Errorf("with a repository: %v, %+v", err, s)
	}
	w.nothingLeft(t)
	for _, kind := range []schema.GroupVersionResource{env.Deployments, env.ConfigMaps} {
		if _, err := spoke.Resource(kind, namespace).Get(t.Context(), "guestbook", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			t.Errorf("%s guestbook of the test is left: %v", kind.Resource, err)
		}
	}
	steps, err = w.connectivity(t, "--spoke-namespace", namespace, "--repo-url", w.argo.Repository.URL, "--path", "nowhere",
		"--timeout", "5s", "--skip", "watch,large-object,pod,redis,revocation")
	if s := steps["sync"]; err == nil || s.Outcome != "failed" || !strings.Contains(s.Says, "it is not synced and healthy: ComparisonError") {
		t.Errorf("with a path that is not there: %v, %+v", err, s)
	}
	w.nothingLeft(t)
}

// nothingLeft looks for what a connectivity test has made.
func (w *liveArgoEnv) nothingLeft(t *testing.T) {
	t.Helper()
	projects := schema.GroupVersionResource{Group: "argoproj.io", Version: "v1alpha1", Resource: "appprojects"}
	spoke := w.Spokes[w.agent]
	for name, at := range map[string]struct {
		where    *harness.ControlPlane
		resource schema.GroupVersionResource
	}{
		"Applications": {w.Hub, harness.Applications}, "AppProjects": {w.Hub, projects}, "Agents": {w.Hub, env.Agents},
		"copies": {spoke, harness.Applications}, "pods": {spoke, env.Pods}, "ConfigMaps": {spoke, env.ConfigMaps},
	} {
		env.Eventually(t, "no "+name+" of the test", func() error {
			list, err := at.where.Resource(at.resource, "").List(t.Context(), metav1.ListOptions{})
			if err != nil {
				return err
			}
			for _, o := range list.Items {
				if strings.Contains(o.GetName(), "connectivity-") {
					return fmt.Errorf("%s/%s is there", o.GetNamespace(), o.GetName())
				}
			}
			return nil
		})
	}
}
