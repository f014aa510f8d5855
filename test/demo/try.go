//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/argomesh/argomesh/test/harness"
)

// trial is something to do to a demo that runs, and to look at.
type trial struct {
	name string
	why  string // ends in what is seen, where
	do   func(context.Context) (string, error)
	undo func(context.Context) (string, error) // nil when it passes by itself
}

// shops is how many Applications trial delete has, and shopPath what they are of.
const (
	shops    = 12
	shopPath = "shop"
	shopFile = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: shop}\ndata: {greeting: hello}\n"
)

var deploymentResource = schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}

// trials are what `demo try` does, in the order in which a person is told of them.
func (t *topology) trials() []trial {
	return []trial{
		{
			"drift", "a replica more on " + managed + ", by hand: " + t.page(harness.ArgoCDNamespace) + " is OutOfSync within a second, its DIFF tab has the line",
			t.drift, t.undrift,
		},
		{
			"cut", "the network of " + managed + " falls silent: after some 20 s the tree of " + t.page(harness.ArgoCDNamespace) + " says `as of`, and Settings > Clusters not connected",
			func(context.Context) (string, error) { t.networks[managed].Silence(); return "nothing passes", nil },
			func(context.Context) (string, error) { t.networks[managed].Mend(); return "all passes", nil },
		},
		{
			"stop", "the agent of " + autonomous + " is frozen: SYNC on " + t.page(autonomous) + " waits for it, and is done once it goes on",
			func(context.Context) (string, error) { return "frozen", t.agents[autonomous].Signal(syscall.SIGSTOP) },
			func(context.Context) (string, error) {
				return "it goes on", t.agents[autonomous].Signal(syscall.SIGCONT)
			},
		},
		{
			"restart", "the principal is killed, and started again: a terminal in a pod ends, the tree of " + t.page(harness.ArgoCDNamespace) + " is back by itself after 2 s",
			func(context.Context) (string, error) { return "killed", t.door.Principal.Kill() }, nil,
		},
		{
			"delete", fmt.Sprintf("%d Applications of %s go from the hub while no principal runs: they stay on %s and wait for a person, as Settings > Clusters > %s says", shops, managed, managed, managed),
			t.loseShops, t.restoreShops,
		},
	}
}

// page is the address of the Application in a namespace of the hub.
func (t *topology) page(namespace string) string {
	if t.signIn == nil {
		return "Application " + namespace + "/" + application
	}
	return fmt.Sprintf("http://%s/applications/%s/%s", t.hub.argocd.ServerAddress, namespace, application)
}

// selfHeal says whether Argo CD undoes what is changed by hand, in the Application of the hub.
func (t *topology) selfHeal(ctx context.Context, on bool) error {
	_, err := t.hub.controlPlane.Resource(harness.Applications, harness.ArgoCDNamespace).Patch(ctx, application, types.MergePatchType,
		fmt.Appendf(nil, `{"spec":{"syncPolicy":{"automated":{"selfHeal":%t}}}}`, on), metav1.PatchOptions{})
	if err != nil {
		return err
	}
	spoke := t.spokes[managed].controlPlane.Resource(harness.Applications, harness.ArgoCDNamespace)
	return harness.Eventually(ctx, "the Application of "+managed+" to follow", func() error {
		o, err := spoke.Get(ctx, application, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if heals, _, _ := unstructured.NestedBool(o.Object, "spec", "syncPolicy", "automated", "selfHeal"); heals != on {
			return errors.New("it does not yet")
		}
		return nil
	})
}

func (t *topology) drift(ctx context.Context) (string, error) {
	if err := t.selfHeal(ctx, false); err != nil {
		return "", err
	}
	_, err := t.spokes[managed].controlPlane.Resource(deploymentResource, application).Patch(ctx, application, types.MergePatchType,
		[]byte(`{"spec":{"replicas":3}}`), metav1.PatchOptions{})
	return "selfHeal is off, and Deployment " + application + " of " + managed + " has 3 replicas", err
}

func (t *topology) undrift(ctx context.Context) (string, error) {
	return "selfHeal is on: Argo CD takes the third replica away", t.selfHeal(ctx, true)
}

// shop is one of the Applications of trial delete.
func (t *topology) shop(i int) *unstructured.Unstructured {
	name := fmt.Sprintf("shop-%02d", i+1)
	app := t.applicationObject(harness.ArgoCDNamespace, map[string]any{"name": managed})
	app.SetName(name)
	spec, _ := app.Object["spec"].(map[string]any)
	spec["source"].(map[string]any)["path"] = shopPath
	spec["destination"].(map[string]any)["namespace"] = name
	return app
}

// makeShops returns when the hub shows them all as synced.
func (t *topology) makeShops(ctx context.Context) error {
	for i := range shops {
		if err := t.hub.controlPlane.Apply(ctx, t.shop(i)); err != nil {
			return err
		}
	}
	for i := range shops {
		if err := waitSynced(ctx, t.hub.controlPlane, harness.ArgoCDNamespace, t.shop(i).GetName()); err != nil {
			return err
		}
	}
	return nil
}

// loseShops deletes them while the principal is away, so that it sees an absence and no
// deletion, as after a restore of the hub.
func (t *topology) loseShops(ctx context.Context) (string, error) {
	if err := t.makeShops(ctx); err != nil {
		return "", err
	}
	if err := t.door.Principal.Kill(); err != nil { // it is started again in a second
		return "", err
	}
	apps := t.hub.controlPlane.Resource(harness.Applications, harness.ArgoCDNamespace)
	for i := range shops {
		if err := apps.Delete(ctx, t.shop(i).GetName(), metav1.DeleteOptions{}); err != nil {
			return "", err
		}
	}
	err := t.waitHeld(ctx, shops)
	return fmt.Sprintf("%d Applications are gone from the hub and run on %s; agentctl agent accept-deletions %s would release them", shops, managed, managed), err
}

func (t *topology) restoreShops(ctx context.Context) (string, error) {
	if err := t.makeShops(ctx); err != nil {
		return "", err
	}
	return "the hub has them again, and nothing is held", t.waitHeld(ctx, 0)
}

// waitHeld waits until so many deletions of the managed agent are held.
func (t *topology) waitHeld(ctx context.Context, want int64) error {
	agents := t.hub.controlPlane.Resource(agentResource, harness.ArgoCDNamespace)
	return harness.Eventually(ctx, "held deletions of "+managed, func() error {
		agent, err := agents.Get(ctx, managed, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if held, _, _ := unstructured.NestedInt64(agent.Object, "status", "deletionsHeld", "total"); held != want {
			return fmt.Errorf("%d are held, not %d", held, want)
		}
		return nil
	})
}

// trialSocket is where a demo takes trials, in its work folder, which is its user's alone.
const trialSocket = "try.sock"

// trialTime bounds a trial.
const trialTime = 2 * time.Minute

// serveTrials does what `demo try` asks for, until ctx is done.
func (t *topology) serveTrials(ctx context.Context) error {
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "unix", t.h.Path(trialSocket))
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	for _, trial := range t.trials() {
		for verb, act := range map[string]func(context.Context) (string, error){"do": trial.do, "undo": trial.undo} {
			if act == nil {
				continue
			}
			mux.HandleFunc("POST /"+trial.name+"/"+verb, func(w http.ResponseWriter, r *http.Request) {
				ctx, cancel := context.WithTimeout(r.Context(), trialTime)
				defer cancel()
				said, err := act(ctx)
				if err != nil {
					http.Error(w, err.Error(), http.StatusInternalServerError)
					return
				}
				t.narrator.say("%s %s: %s", verb, trial.name, said)
				_, _ = fmt.Fprintln(w, said) // who asked may have gone
			})
		}
	}
	server := &http.Server{Handler: mux, ReadHeaderTimeout: trialTime}
	context.AfterFunc(ctx, func() { _ = server.Close() }) // what is under way ends with the demo
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// try asks a running demo for a trial, or to undo it.
func try(ctx context.Context, opts options, args []string) error {
	names := []string{}
	for _, trial := range new(topology).trials() {
		names = append(names, trial.name)
	}
	verb := "do"
	if len(args) == 2 && args[1] == "undo" {
		verb, args = "undo", args[:1]
	}
	if len(args) != 1 || !slices.Contains(names, args[0]) {
		return fmt.Errorf("say what to try, one of %s, and then undo for the way back", strings.Join(names, ", "))
	}
	socket := filepath.Join(opts.dir, trialSocket)
	if _, err := os.Stat(socket); err != nil {
		return fmt.Errorf("no demo runs in %s: start it by make demo", opts.dir)
	}
	client := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		var dialer net.Dialer
		return dialer.DialContext(ctx, "unix", socket)
	}}}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://demo/"+args[0]+"/"+verb, http.NoBody)
	if err != nil {
		return err
	}
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	said, err := io.ReadAll(response.Body)
	if err := errors.Join(err, response.Body.Close()); err != nil {
		return err
	}
	switch response.StatusCode {
	case http.StatusOK:
		fmt.Print(string(said))
		return nil
	case http.StatusNotFound:
		return fmt.Errorf("%s passes by itself: there is nothing to undo", args[0])
	}
	return errors.New(strings.TrimSpace(string(said)))
}
