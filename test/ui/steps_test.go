//go:build linux && ui

package ui

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/argomesh/argomesh/test/browser"
	"github.com/argomesh/argomesh/test/harness"
)

var both = []string{managed, autonomous}

func signIn(v *tour) {
	fill := func(password string) {
		v.do(func(ctx context.Context) error {
			if err := v.page.WaitFor(ctx, browser.At("input[name=username]")); err != nil {
				return err
			}
			return errors.Join(
				v.page.Fill(ctx, browser.At("input[name=username]"), "admin"),
				v.page.Fill(ctx, browser.At("input[name=password]"), password),
				v.page.Click(ctx, browser.At("button[type=submit]")),
			)
		})
	}
	v.open("/applications")
	v.timed("a wrong password", "", func() { fill("wrong"); v.shows("Invalid username or password") })
	v.timed("login, until the list", "", func() { fill(v.password); v.shows(app) })

	other := v.newPage()
	v.timed("the demo's link, until the list", "", func() {
		v.do(func(ctx context.Context) error { return other.Go(ctx, v.link) })
		v.do(func(ctx context.Context) error { return other.WaitText(ctx, app) })
	})
	again := v.newPage()
	v.do(func(ctx context.Context) error { return again.Go(ctx, v.link) })
	v.do(func(ctx context.Context) error { return again.WaitText(ctx, "This link was used") })
	v.must(errors.Join(other.Close(v.Context()), again.Close(v.Context())))
}

func lookAtBoth(v *tour) {
	v.timed("the list", "", func() {
		v.open("/applications?view=tiles")
		v.waits("both tiles", `document.querySelectorAll('.applications-list__info, .applications-tiles__item').length >= 2`)
	})
	v.picture("list")
	for _, agent := range both {
		v.timed("tree with pods, page load included", agent, func() { v.open(tree(agent)); v.waits("two pods", nodes("pod")+" === 2") })
		v.waits("health", status("Healthy"))
		v.picture("tree-" + agent)
		v.timed("list of resources", agent, func() { v.open(strings.Replace(tree(agent), "=tree", "=list", 1)); v.shows("ReplicaSet") })
		v.timed("live manifest of a ConfigMap", agent, func() {
			v.open(resource(agent, "/ConfigMap/guestbook/guestbook/0", "summary"))
			v.shows("greeting")
		})
		v.timed("events of a Deployment", agent, func() {
			v.open(resource(agent, "apps/Deployment/guestbook/guestbook/0", "events"))
			v.shows("ScalingReplicaSet")
		})
		v.picture("events-" + agent)
		v.timed("logs of a pod", agent, func() {
			v.open(resource(agent, "/Pod/guestbook/"+v.pod(agent)+"/0", "logs"))
			v.shows("listens on port 80")
		})
		v.picture("logs-" + agent)
	}
}

// pod is the name of one of the Application's pods.
func (v *tour) pod(agent string) string {
	v.Helper()
	list, err := v.spokes[agent].Resource(pods).Namespace(app).List(v.Context(), metav1.ListOptions{LabelSelector: "app=guestbook"})
	v.must(err)
	for _, o := range list.Items {
		if o.GetDeletionTimestamp() == nil {
			return o.GetName()
		}
	}
	v.Fatalf("%s has no pod", agent)
	return ""
}

// terminals types a command into a shell in a pod, which leaves a file.
func terminals(v *tour) {
	for _, agent := range both {
		v.open(resource(agent, "/Pod/guestbook/"+v.pod(agent)+"/0", "exec"))
		v.do(func(ctx context.Context) error {
			return v.page.WaitFor(ctx, browser.At(".xterm-helper-textarea, .xterm"))
		})
		file := filepath.Join(v.dir, "pod", "typed-for-"+agent)
		// Until the shell has its prompt, what is typed is lost: so it is typed again.
		v.timed("terminal: open a shell, and run a command", agent, func() {
			v.eventually("the command to have run", func() error {
				v.do(func(ctx context.Context) error {
					return errors.Join(v.page.Click(ctx, browser.At(".xterm")), v.page.Type(ctx, "touch "+filepath.Base(file)+"\n"))
				})
				_, err := os.Stat(file)
				return err
			})
		})
		v.picture("terminal-" + agent)
	}
}

func secrets(v *tour) {
	for _, agent := range both {
		v.timed("live manifest of a Secret, without its value", agent, func() {
			v.open(resource(agent, "/Secret/guestbook/guestbook/0", "summary"))
			v.shows("++++")
		})
		text, err := v.page.Text(v.Context())
		if err != nil || strings.Contains(text, "correct-horse") || strings.Contains(text, "Y29ycmVjdC1ob3JzZQ") {
			v.Errorf("the page of a Secret of %s shows its value, or %v:\n%s", agent, err, text)
		}
		v.picture("secret-" + agent)
		v.timed("a refusal with its rule", agent, func() {
			v.click(browser.Text(".sliding-panel button", "Delete"))
			v.confirm("guestbook")
			v.shows("refused by the hub")
		})
		v.waits("the refusal to be all there", `[...document.querySelectorAll('.Toastify__toast')].some(e => e.getBoundingClientRect().right <= innerWidth)`)
		v.picture("refusal-" + agent)
	}
}

// confirm answers a dialog, which may want a name.
func (v *tour) confirm(name string) {
	v.Helper()
	field := browser.At(".popup-container input:not([type=radio]):not([type=checkbox])")
	v.do(func(ctx context.Context) error {
		if err := v.page.WaitFor(ctx, browser.At(".popup-container")); err != nil {
			return err
		}
		asks, err := v.page.Shows(ctx, field)
		if err == nil && asks {
			err = v.page.Fill(ctx, field, name)
		}
		return errors.Join(err, v.page.Click(ctx, browser.Text(".popup-container button", "OK")))
	})
}

// markup has a spoke say what a browser could take for a program.
func markup(v *tour) {
	const hostile = `<img src=x onerror="window.fromTheSpoke=1">`
	for _, agent := range both {
		deployment, err := v.spokes[agent].Resource(deployments).Namespace(app).Get(v.Context(), app, metav1.GetOptions{})
		v.must(err)
		_, err = v.spokes[agent].Resource(events).Namespace(app).Create(v.Context(), &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "v1", "kind": "Event", "metadata": map[string]any{"generateName": "markup-", "namespace": app},
			"involvedObject": map[string]any{"apiVersion": "apps/v1", "kind": "Deployment", "name": app, "namespace": app, "uid": string(deployment.GetUID())},
			"reason":         "Markup", "message": hostile, "type": "Warning", "count": int64(1),
			"firstTimestamp": time.Now().UTC().Format(time.RFC3339), "lastTimestamp": time.Now().UTC().Format(time.RFC3339),
			"source": map[string]any{"component": hostile},
		}}, metav1.CreateOptions{})
		v.must(err)
		v.open(resource(agent, "apps/Deployment/guestbook/guestbook/0", "events"))
		v.shows(hostile)
		var ran bool
		v.must(v.page.Eval(v.Context(), "!!window.fromTheSpoke", &ran))
		if ran {
			v.Errorf("what %s says is run by the page", agent)
		}
	}
}

// automated sets the policy of automated sync where it belongs.
func (v *tour) automated(agent, automated string) {
	v.Helper()
	where := v.hub
	if agent == autonomous {
		where = v.spokes[agent]
	}
	_, err := where.Resource(applications).Namespace(harness.ArgoCDNamespace).Patch(v.Context(), app, types.MergePatchType,
		[]byte(`{"spec":{"syncPolicy":{"automated":`+automated+`}}}`), metav1.PatchOptions{})
	v.must(err)
	v.eventually("the policy on both sides", func() error {
		on, err := v.hub.Resource(applications).Namespace(namespace(agent)).Get(v.Context(), app, metav1.GetOptions{})
		if err != nil {
			return err
		}
		there, err := v.spokes[agent].Resource(applications).Namespace(harness.ArgoCDNamespace).Get(v.Context(), app, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if a, b := policy(on), policy(there); a != b {
			return fmt.Errorf("%s and %s", a, b)
		}
		return nil
	})
}

// policy is what an Application says of automated sync. A switch that is off may be left out.
func policy(o *unstructured.Unstructured) string {
	automated, found, _ := unstructured.NestedMap(o.Object, "spec", "syncPolicy", "automated")
	return fmt.Sprint(found, automated["selfHeal"] == true)
}

// scale sets the replicas of the Deployment on a spoke, by hand.
func (v *tour) scale(agent string, replicas int) {
	v.Helper()
	_, err := v.spokes[agent].Resource(deployments).Namespace(app).Patch(v.Context(), app, types.MergePatchType,
		fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, replicas), metav1.PatchOptions{})
	v.must(err)
}

func driftAndSync(v *tour) {
	for _, agent := range both {
		v.automated(agent, `{"prune":true,"selfHeal":false}`)
		v.open(tree(agent))
		v.waits("two pods", nodes("pod")+" === 2")
		v.timed("drift on the spoke, until the open page says OutOfSync", agent, func() { v.scale(agent, 3); v.waits("OutOfSync", status("OutOfSync")) })
		v.picture("drift-" + agent)
		v.timed("DIFF shows the line", agent, func() {
			v.open(resource(agent, "argoproj.io/Application/"+namespace(agent)+"/"+app+"/0", "diff"))
			v.shows("replicas: 3")
		})
		v.picture("diff-" + agent)
		v.open(tree(agent))
		v.waits("OutOfSync", status("OutOfSync"))
		v.timed("SYNC, until the page says Synced", agent, func() {
			v.click(browser.Text("button", "Sync"))
			v.click(browser.At("[qe-id=application-sync-panel-button-synchronize]"))
			v.waits("Synced, with two pods", status("Synced")+" && "+nodes("pod")+" === 2")
		})
		v.waits("Sync OK", status("Sync OK"))
		v.refresh(agent)
	}
}

// refresh clicks the button, and returns when the spoke's controller has looked again.
func (v *tour) refresh(agent string) {
	v.Helper()
	looked := func() string {
		o, err := v.hub.Resource(applications).Namespace(namespace(agent)).Get(v.Context(), app, metav1.GetOptions{})
		v.must(err)
		at, _, _ := unstructured.NestedString(o.Object, "status", "reconciledAt")
		return at
	}
	before := looked()
	v.eventually("a second to pass, which is as exact as the time is", func() error {
		if time.Now().UTC().Format(time.RFC3339) <= before {
			return errors.New("the same second")
		}
		return nil
	})
	v.timed("REFRESH, until the spoke has looked again", agent, func() {
		v.click(browser.Part("button", "Refresh"))
		v.eventually("the controller of "+agent+" to look again", func() error {
			if looked() == before {
				return errors.New("it has not")
			}
			return nil
		})
	})
}

func scales(v *tour) {
	for _, agent := range both {
		v.open(tree(agent))
		v.waits("two pods", nodes("pod")+" === 2")
		v.timed("the open tree follows a scale", agent, func() { v.scale(agent, 5); v.waits("five pods", nodes("pod")+" === 5") })
		v.scale(agent, 2)
		v.waits("two pods", nodes("pod")+" === 2")
	}
}

func deletePods(v *tour) {
	for _, agent := range both {
		pod := v.pod(agent)
		v.open(resource(agent, "/Pod/guestbook/"+pod+"/0", "summary"))
		v.timed("a pod is deleted", agent, func() {
			v.click(browser.Text(".sliding-panel button", "Delete"))
			v.confirm(pod)
			v.eventually("pod "+pod+" to be gone from "+agent, func() error {
				_, err := v.spokes[agent].Resource(pods).Namespace(app).Get(v.Context(), pod, metav1.GetOptions{})
				if apierrors.IsNotFound(err) {
					return nil
				}
				return errors.Join(err, errors.New("it is there"))
			})
		})
	}
}

// rollback rolls the managed Application back to the commit before.
func rollback(v *tour) {
	greeting := func(want string) {
		v.eventually("the greeting "+want+" on the spoke", func() error {
			o, err := v.spokes[managed].Resource(configMaps).Namespace(app).Get(v.Context(), app, metav1.GetOptions{})
			if err != nil {
				return err
			}
			if got, _, _ := unstructured.NestedString(o.Object, "data", "greeting"); got != want {
				return fmt.Errorf("it is %q", got)
			}
			return nil
		})
	}
	v.commit("guestbook/configmap.yaml", "hello", "good evening")
	v.open(tree(managed))
	v.timed("a commit, until the spoke has it (git is asked on REFRESH)", managed, func() { v.click(browser.Part("button", "Refresh")); greeting("good evening") })
	v.automated(managed, "null")
	v.open(tree(managed) + "&rollback=0")
	v.shows("Deployed At")
	v.picture("history")
	v.timed("rollback, until the spoke has it", managed, func() {
		v.waits("two deployments", `document.querySelectorAll('.application-deployment-history__item').length >= 2`)
		v.must(v.page.Eval(v.Context(), `document.querySelectorAll('.application-deployment-history__item')[1].querySelector('.application-deployment-history__item-menu button').parentElement.click()`, nil))
		v.click(browser.Text("li, .argo-dropdown__menu a", "Rollback"))
		v.confirm("")
		greeting("hello")
	})
	v.commit("guestbook/configmap.yaml", "good evening", "hello")
	v.automated(managed, `{"prune":true,"selfHeal":true}`)
}

// form creates an Application by the form of the list, and deletes it with its workloads.
func form(v *tour) {
	const name = "by-form"
	v.open("/applications?new=" + escape(`{"apiVersion":"argoproj.io/v1alpha1","kind":"Application","metadata":{"name":"`+name+`"},"spec":{"project":"default","source":{"repoURL":"file://`+
		filepath.Join(v.dir, "repository")+`","path":"shop","targetRevision":"main"},"destination":{"name":"`+managed+`","namespace":"`+name+`"},"syncPolicy":{"automated":{},"syncOptions":["CreateNamespace=true"]}}}`))
	v.do(func(ctx context.Context) error {
		return v.page.WaitFor(ctx, browser.At("[qe-id=applications-list-button-create]"))
	})
	v.picture("form")
	v.timed("create by the form, until it is synced on the spoke", managed, func() {
		v.click(browser.At("[qe-id=applications-list-button-create]"))
		v.eventually("its ConfigMap on the spoke", func() error {
			_, err := v.spokes[managed].Resource(configMaps).Namespace(name).Get(v.Context(), "shop", metav1.GetOptions{})
			return err
		})
	})
	v.open("/applications/argocd/" + name + "?view=tree")
	v.timed("delete with cascade, until the spoke has nothing of it", managed, func() {
		v.click(browser.Text("button", "Delete"))
		v.confirm(name)
		v.eventually("its ConfigMap to be gone", func() error {
			_, err := v.spokes[managed].Resource(configMaps).Namespace(name).Get(v.Context(), "shop", metav1.GetOptions{})
			if apierrors.IsNotFound(err) {
				return nil
			}
			return errors.Join(err, errors.New("it is there"))
		})
	})
}

// escape is a text in the query of an address.
func escape(text string) string {
	var b strings.Builder
	for _, c := range []byte(text) {
		_, _ = fmt.Fprintf(&b, "%%%02X", c)
	}
	return b.String()
}

// mirror changes and deletes what belongs to the autonomous spoke.
func mirror(v *tour) {
	const sentence = "this Application belongs to the autonomous agent edge-2: change or delete it there"
	v.open(tree(autonomous))
	v.waits("two pods", nodes("pod")+" === 2")
	v.timed("a mirror is deleted: the refusal", autonomous, func() {
		v.click(browser.Text("button", "Delete"))
		v.confirm(app)
		v.shows(sentence)
	})
	v.picture("mirror-refused")
	_, err := v.hub.Resource(applications).Namespace(autonomous).Get(v.Context(), app, metav1.GetOptions{})
	v.must(err)
}

func clusters(v *tour) {
	v.timed("Settings > Clusters", "", func() { v.open("/settings/clusters"); v.shows(refused) })
	v.shows("Failed")
	v.picture("clusters")
	v.click(browser.Text("span", refused))
	v.shows("registered as managed")
	v.picture("cluster-refused")
}

func principalKilled(v *tour) {
	v.open(tree(managed))
	v.waits("two pods", nodes("pod")+" === 2")
	v.automated(managed, `{"prune":true,"selfHeal":false}`)
	v.timed("principal killed and the spoke changed, until the open page shows the change", managed, func() {
		v.try("restart")
		v.scale(managed, 4)
		v.waits("four pods", nodes("pod")+" === 4")
	})
	v.waits("no word of an outage", "!"+stale)
	v.automated(managed, `{"prune":true,"selfHeal":true}`)
	v.waits("two pods", nodes("pod")+" === 2")
}

func agentStopped(v *tour) {
	v.open(tree(autonomous))
	v.waits("two pods, of now", nodes("pod")+" === 2 && !"+stale)
	v.timed("agent frozen, until the open page says as of", autonomous, func() { v.try("stop"); v.waits("as of", stale) })
	v.picture("away")
	v.timed("agent goes on, until the open page does not say it", autonomous, func() { v.try("stop", "undo"); v.waits("no as of", "!"+stale) })
}

func networkCut(v *tour) {
	v.open(tree(managed))
	v.waits("two pods, of now", nodes("pod")+" === 2 && !"+stale)
	v.timed("network cut, until the open page says as of", managed, func() { v.try("cut"); v.waits("as of", stale) })
	v.timed("network back, until the open page does not say it", managed, func() { v.try("cut", "undo"); v.waits("no as of", "!"+stale) })
}

// many is how the list copes with 200 Applications.
func many(v *tour) {
	const count = 200
	for i := range count {
		name := fmt.Sprintf("many-%03d", i)
		_, err := v.hub.Resource(applications).Namespace(harness.ArgoCDNamespace).Create(v.Context(), &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "argoproj.io/v1alpha1", "kind": "Application", "metadata": map[string]any{"name": name, "namespace": harness.ArgoCDNamespace},
			"spec": map[string]any{
				"project":     "default",
				"source":      map[string]any{"repoURL": "file://" + filepath.Join(v.dir, "repository"), "path": "shop", "targetRevision": "main"},
				"destination": map[string]any{"name": managed, "namespace": name},
			},
		}}, metav1.CreateOptions{})
		v.must(err)
	}
	v.eventually("all to be compared on the spoke", func() error {
		list, err := v.hub.Resource(applications).Namespace(harness.ArgoCDNamespace).List(v.Context(), metav1.ListOptions{})
		if err != nil {
			return err
		}
		known := 0
		for _, o := range list.Items {
			if status, _, _ := unstructured.NestedString(o.Object, "status", "sync", "status"); status == "OutOfSync" {
				known++
			}
		}
		if known < count {
			return fmt.Errorf("%d of %d are", known, count)
		}
		return nil
	})
	v.timed("the list of 202 Applications", "", func() { v.open("/applications?view=list"); v.shows("many-000") })
	v.picture("many")
	v.timed("the list filtered to one", "", func() { v.open("/applications?view=list&search=many-199"); v.shows("many-199"); v.hides("many-000") })
}

// commit replaces a text in a file of the demo's repository.
func (v *tour) commit(file, old, to string) {
	v.Helper()
	repository := filepath.Join(v.dir, "repository")
	content, err := os.ReadFile(filepath.Join(repository, file))
	v.must(err)
	if !strings.Contains(string(content), old) {
		v.Fatalf("%s does not contain %q", file, old)
	}
	v.must(os.WriteFile(filepath.Join(repository, file), []byte(strings.Replace(string(content), old, to, 1)), 0o600))
	v.git(repository, "commit", "--quiet", "--all", "--message", "another greeting")
}
