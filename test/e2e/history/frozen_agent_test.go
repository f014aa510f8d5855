//go:build linux

package history

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/argomesh/argomesh/test/e2e/internal/env"
	"github.com/argomesh/argomesh/test/harness"
)

const skipReconcileKey = "argocd.argoproj.io/skip-reconcile"

// apiGate is one agent's way to its API server. It holds one write of an Application up.
type apiGate struct {
	kubeconfig string
	method     atomic.Pointer[string] // of the write to hold up; nil for none
	held       chan struct{}          // closed when it is
	open       func()
	opened     chan struct{}
	answered   chan struct{} // closed when the API server has answered it
}

func newAPIGate(t *testing.T, c *harness.ControlPlane) *apiGate {
	t.Helper()
	transport, err := rest.TransportFor(c.REST())
	if err != nil {
		t.Fatal(err)
	}
	target, err := url.Parse(c.URL)
	if err != nil {
		t.Fatal(err)
	}
	g := &apiGate{held: make(chan struct{}), opened: make(chan struct{}), answered: make(chan struct{})}
	g.open = sync.OnceFunc(func() { close(g.opened) })
	proxy := &httputil.ReverseProxy{
		Transport: transport, FlushInterval: -1,
		Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target) },
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		method := g.method.Load()
		if method == nil || r.Method != *method || !strings.Contains(r.URL.Path, "/applications") || !g.method.CompareAndSwap(method, nil) {
			proxy.ServeHTTP(w, r)
			return
		}
		close(g.held)
		<-g.opened
		proxy.ServeHTTP(w, r.WithContext(context.WithoutCancel(r.Context()))) // it is under way
		close(g.answered)
	}))
	t.Cleanup(func() {
		g.open()
		server.CloseClientConnections()
		server.Close()
	})
	config := clientcmdapi.NewConfig()
	config.Clusters["gate"] = &clientcmdapi.Cluster{Server: server.URL}
	config.Contexts["gate"] = &clientcmdapi.Context{Cluster: "gate"}
	config.CurrentContext = "gate"
	g.kubeconfig = t.TempDir() + "/kubeconfig"
	if err := clientcmd.WriteToFile(*config, g.kubeconfig); err != nil {
		t.Fatal(err)
	}
	return g
}

// TestFrozenAgent freezes an agent while a write of it is under way, until another one has
// taken its place and the Application, with its workloads, is deleted. What arrives then
// Argo CD must not deploy.
func TestFrozenAgent(t *testing.T) {
	t.Parallel()
	w := env.OwnBare(t)
	for name, method := range map[string]string{"frozen-create": http.MethodPost, "frozen-update": http.MethodPut} {
		t.Run(name, func(t *testing.T) {
			ctx := t.Context()
			r := w.Register(t, name, "managed")
			gate := newAPIGate(t, w.Spoke)
			r.Settings = harness.Settings{"kubernetes.kubeconfig": gate.kubeconfig}
			r.Start(t)
			identity, err := w.Identify(ctx, env.SPIFFEID(name))
			if err != nil {
				t.Fatal(err)
			}
			successor, err := w.Harness.StartAgent(ctx, harness.AgentConfig{
				Name: name, Process: name + "-2", Mode: "managed", ControlPlane: w.Spoke, WorkloadAPI: identity,
				PrincipalAddress: w.Principal.Address, PrincipalIDs: []string{env.PrincipalID}, Settings: harness.Settings{"namespace": r.Namespace},
			})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				if err := successor.Stop(context.WithoutCancel(ctx)); err != nil {
					t.Error(err)
				}
			})
			spoke := env.Record(t, r.Spoke)
			gate.method.Store(&method)
			app := r.Application("shop")
			app.SetFinalizers([]string{"resources-finalizer.argocd.argoproj.io"})
			if err := unstructured.SetNestedMap(app.Object, map[string]any{"automated": map[string]any{"prune": true}}, "spec", "syncPolicy"); err != nil {
				t.Fatal(err)
			}
			env.Create(t, r.Hub, app)
			await(t, "a write of the agent", gate.held)
			if err := r.Agent.Signal(syscall.SIGSTOP); err != nil {
				t.Fatal(err)
			}
			thaw := sync.OnceValue(func() error { return r.Agent.Signal(syscall.SIGCONT) })
			t.Cleanup(func() { _ = thaw() }) // else it does not stop
			env.Eventually(t, "the other agent has made it", func() error {
				o, err := r.Spoke.Get(ctx, "shop", metav1.GetOptions{})
				if err == nil && o.GetAnnotations()[skipReconcileKey] != "" {
					err = fmt.Errorf("it is kept from Argo CD: %v", o.GetAnnotations())
				}
				return err
			})
			if err := r.Hub.Delete(ctx, "shop", metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
			env.Eventually(t, "Argo CD has deleted the workloads", func() error {
				o, err := r.Spoke.Get(ctx, "shop", metav1.GetOptions{})
				if err != nil {
					return err
				}
				if o.GetDeletionTimestamp() == nil {
					return fmt.Errorf("it is not being deleted")
				}
				o.SetFinalizers(nil)
				_, err = r.Spoke.Update(ctx, o, metav1.UpdateOptions{})
				return err
			})
			env.Eventually(t, "the hub lets it go", func() error { return env.Gone(ctx, r.Hub, "shop") })
			spoke.CaughtUp(t, r.Spoke)
			before := len(spoke.History("shop"))

			gate.open()
			await(t, "the answer to the late write", gate.answered)
			if err := thaw(); err != nil {
				t.Fatal(err)
			}
			env.Eventually(t, "what the frozen agent made is gone", func() error { return env.Gone(ctx, r.Spoke, "shop") })
			env.Eventually(t, "the frozen agent stands by", func() error { return env.ActiveAgent(ctx, r.Agent, false) })
			spoke.CaughtUp(t, r.Spoke)
			late := spoke.History("shop")[before:]
			for _, event := range late {
				if o := event.Object.(*unstructured.Unstructured); o.GetAnnotations()[skipReconcileKey] != "true" {
					t.Errorf("Argo CD could deploy what was deleted: %s %v", event.Type, o.Object["metadata"])
				}
			}
			if len(late) == 0 && method == http.MethodPost {
				t.Error("the late create made nothing: the test shows nothing")
			}
		})
	}
}

// await returns when done is closed.
func await(t *testing.T, what string, done <-chan struct{}) {
	t.Helper()
	select {
	case <-done:
	case <-time.After(env.Patience):
		t.Fatalf("no %s after %s", what, env.Patience)
	}
}
