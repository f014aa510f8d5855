//go:build linux && matrix

package live

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/argomesh/argomesh/test/e2e/internal/env"
	"github.com/argomesh/argomesh/test/golden"
	"github.com/argomesh/argomesh/test/harness"
	"github.com/argomesh/argomesh/test/harness/harnesstest"
)

// argoCommands runs the argocd command line at the hub, and keeps what it said.
type argoCommands struct {
	*liveArgoEnv
	t    *testing.T
	said map[string]string // by the command, as a person types it
}

// run runs a command, which succeeds, and whose output has all texts.
func (c *argoCommands) run(wants []string, args ...string) string {
	c.t.Helper()
	out, err := c.argo.HubArgo.CLI(c.t.Context(), args...)
	if err != nil {
		c.t.Fatalf("%v: %s", err, out)
	}
	c.heard(out, args)
	for _, want := range wants {
		if !strings.Contains(out, want) {
			c.t.Errorf("argocd %s does not say %q:\n%s", strings.Join(args, " "), want, out)
		}
	}
	return out
}

// heard keeps the first output of a command.
func (c *argoCommands) heard(out string, args []string) {
	for i, arg := range args {
		if strings.ContainsAny(arg, " {\"") {
			args = slices.Clone(args)
			args[i] = "'" + arg + "'"
		}
	}
	command := c.neutral("argocd " + strings.Join(args, " "))
	if _, had := c.said[command]; !had {
		c.said[command] = c.neutral(out)
	}
}

// neutral puts in names for what is of this run alone.
func (c *argoCommands) neutral(text string) string {
	return strings.NewReplacer(
		c.argo.Repository.URL, "https://git.example.org/shop.git",
		c.FrontDoor.URL, "https://argomesh-principal:9090",
		"http://"+c.argo.HubArgo.ServerAddress, "https://argocd.example.org",
		c.argo.HubArgo.ServerAddress, "argocd.example.org",
		c.Harness.Path()+"/", "",
	).Replace(text)
}

// Every command of stock Argo CD's command line that is about Applications works for
// those of a spoke. With -update docs/argocd.md gets what it says.
func TestArgoCDCommands(t *testing.T) {
	t.Parallel()
	harnesstest.SkipMissing(t, "envoy", "etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kwok", "kubectl", "argocd")
	for _, mapping := range []string{byNamespace, byDestination} {
		t.Run("by "+mapping, func(t *testing.T) {
			for _, agent := range []string{env.Managed, env.Autonomous} {
				t.Run(agent, func(t *testing.T) {
					t.Parallel()
					c := &argoCommands{liveArgoEnv: startLiveArgo(t, agent, mapping), t: t, said: map[string]string{}}
					c.applications()
					c.around()
					c.away("shop")
					c.termination()
					c.end()
					if agent == env.Managed && mapping == byNamespace && !t.Failed() {
						c.document("../../../docs/argocd.md")
					}
				})
			}
		})
	}
}

// app is an Application as the command line names it.
func (c *argoCommands) app(name string) string { return c.namespace + "/" + name }

// onHub and onOwner are the agent's Applications where they are shown and written.
func (c *argoCommands) onHub() dynamic.ResourceInterface {
	return c.Hub.Resource(harness.Applications, c.namespace)
}

func (c *argoCommands) onOwner() dynamic.ResourceInterface {
	if c.agent == env.Autonomous {
		return c.Spokes[c.agent].Resource(harness.Applications, harness.ArgoCDNamespace)
	}
	return c.onHub()
}

// create makes an Application of a path in the repository, which no one syncs by
// itself, and waits until the hub shows what the spoke thinks of it.
func (c *argoCommands) create(name, path string) {
	c.t.Helper()
	if c.agent == env.Managed {
		c.run([]string{"created"}, "app", "create", c.app(name), "--repo", c.argo.Repository.URL, "--path", path, "--project", env.Project,
			"--dest-name", c.agent, "--dest-namespace", name, "--sync-option", "CreateNamespace=true")
	} else {
		app := c.argo.Plain(name, harness.ArgoCDNamespace, "")
		app.Object["spec"].(map[string]any)["source"].(map[string]any)["path"] = path
		env.Create(c.t, c.onOwner(), app)
	}
	env.Eventually(c.t, "the hub shows that "+name+" is out of sync", func() error {
		return env.FieldIs(c.t.Context(), c.onHub(), name, "OutOfSync", "status", "sync", "status")
	})
}

// applications goes through the life of one.
func (c *argoCommands) applications() {
	t, ctx := c.t, c.t.Context()
	const name = "shop"
	app := c.app(name)
	spoke := c.Spokes[c.agent]
	c.create(name, harness.GuestbookPath)
	c.run([]string{app, "OutOfSync"}, "app", "list")
	// The live state is what the spoke's controller keeps in Redis there.
	c.run([]string{"===== apps/Deployment " + name + "/guestbook", "> "}, "app", "diff", app, "--exit-code=false")
	c.run([]string{"Phase:              Succeeded", "deployment.apps/guestbook created"}, "app", "sync", app)
	c.run([]string{"Health Status:      Healthy", "Sync Status:        Synced"}, "app", "wait", app, "--health", "--timeout", "300")
	c.liveArgoEnv.tree(t, name, node{Kind: "Pod"})
	c.ui(name)
	c.run([]string{"Synced to", "guestbook"}, "app", "get", app)
	c.run([]string{"Deployment/guestbook", "ReplicaSet/guestbook-", "Pod/guestbook-"}, "app", "get", app, "--output", "tree")
	c.run([]string{"Deployment", "guestbook"}, "app", "resources", app)
	c.run(nil, "app", "diff", app)
	c.run([]string{"kind: Deployment", "greeting: hello"}, "app", "manifests", app, "--source", "git")
	c.run([]string{"kind: Deployment", "availableReplicas: 2"}, "app", "manifests", app, "--source", "live")
	c.run([]string{"ID", "0 "}, "app", "history", app)

	first, second := "the first line "+rand.Text()[:4], "one that follows "+rand.Text()[:4]
	if err := c.Log.Say(first); err != nil {
		t.Fatal(err)
	}
	c.run([]string{first}, "app", "logs", app, "--kind", "Pod", "--tail", "1")
	follow := []string{"app", "logs", app, "--kind", "Pod", "--tail", "1", "--follow"}
	f := c.follow(t, follow...)
	said := f.Until(t, first)
	if err := c.Log.Say(second); err != nil {
		t.Fatal(err)
	}
	c.heard(said+f.Until(t, second), follow)

	c.run([]string{"restart"}, "app", "actions", "list", app, "--kind", "Deployment")
	c.run(nil, "app", "actions", "run", app, "restart", "--kind", "Deployment", "--resource-name", "guestbook")
	env.Eventually(t, "the Deployment was restarted", func() error {
		o, err := spoke.Resource(env.Deployments, name).Get(ctx, "guestbook", metav1.GetOptions{})
		if err == nil && !strings.Contains(fmt.Sprint(o.Object["spec"]), "kubectl.kubernetes.io/restartedAt") {
			err = errors.New("it was not")
		}
		return err
	})
	c.run([]string{"restartedAt"}, "app", "get-resource", app, "--kind", "Deployment", "--resource-name", "guestbook", "--output", "yaml")
	c.run(nil, "app", "patch-resource", app, "--kind", "ConfigMap", "--resource-name", "guestbook",
		"--patch", `{"data":{"greeting":"good evening"}}`, "--patch-type", "application/merge-patch+json")
	if got, _, _ := unstructured.NestedString(env.Get(t, spoke.Resource(env.ConfigMaps, name), "guestbook").Object, "data", "greeting"); got != "good evening" {
		t.Errorf("after patch-resource it is %q", got)
	}
	c.run(nil, "app", "delete-resource", app, "--kind", "Service", "--resource-name", "guestbook")
	services := schema.GroupVersionResource{Version: "v1", Resource: "services"}
	env.Eventually(t, "the Service was deleted", func() error { return env.Gone(ctx, spoke.Resource(services, name), "guestbook") })
	env.Eventually(t, "the hub shows that it differs", func() error { return env.FieldIs(ctx, c.onHub(), name, "OutOfSync", "status", "sync", "status") })
	c.refreshed(name, "good evening")
	c.run([]string{"Succeeded"}, "app", "sync", app, "--prune")

	if _, err := c.argo.Repository.Commit(t.Context(), "another greeting", map[string]string{
		harness.GuestbookPath + "/configmap.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: guestbook\ndata:\n  greeting: good morning\n",
	}); err != nil {
		t.Fatal(err)
	}
	c.run([]string{"OutOfSync"}, "app", "get", app, "--refresh")
	c.run([]string{"Succeeded"}, "app", "sync", app, "--timeout", "300")
	greets := func(want string) {
		t.Helper()
		env.Eventually(t, "the ConfigMap says "+want, func() error {
			return env.FieldIs(ctx, spoke.Resource(env.ConfigMaps, name), "guestbook", want, "data", "greeting")
		})
	}
	greets("good morning")
	if c.agent == env.Autonomous {
		c.refusesRollback(name)
		greets("good morning")
		history, _, err := unstructured.NestedSlice(env.Get(t, c.onOwner(), name).Object, "status", "history")
		if err != nil || len(history) < 2 {
			t.Fatalf("the history is %v, %v", history, err)
		}
		first := history[0].(map[string]any)["revision"]
		env.Patch(t, c.onOwner(), name, map[string]any{"operation": map[string]any{"sync": map[string]any{"revision": first}}}) // its owner may
	} else {
		c.run([]string{"Succeeded"}, "app", "rollback", app, "0", "--timeout", "300")
	}
	greets("hello")
}

// refusesRollback shows that an autonomous agent deploys what its owner's Application says
// and nothing that was before, and says so. The command waits for what does not come.
func (c *argoCommands) refusesRollback(name string) {
	c.t.Helper()
	if out, err := c.argo.HubArgo.CLI(c.t.Context(), "app", "rollback", c.app(name), "0", "--timeout", "20"); err == nil {
		c.t.Errorf("argocd app rollback of an autonomous agent's Application succeeds: %s", out)
	}
	want := "not run by agent " + c.agent + ": an autonomous agent syncs only what the Application on the spoke says"
	env.Eventually(c.t, "the hub says that the rollback was not run", func() error {
		o, err := c.onHub().Get(c.t.Context(), name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if got, _, _ := unstructured.NestedString(o.Object, "status", "operationState", "message"); !strings.HasPrefix(got, want) {
			return fmt.Errorf("it says %q", got)
		}
		return nil
	})
}

// ui is what only the UI shows, by the API that it uses.
func (c *argoCommands) ui(name string) {
	var events, nodes [][]string
	for _, e := range c.testEvents(c.t, name) {
		events = append(events, []string{e.Reason, e.Message})
	}
	c.asked(c.eventsPath(name, "$UID"), ".items[] | [.reason, .message]", events)
	for _, n := range c.testTreeWatch(c.t, name, func(shows func(string)) { c.restartPrincipal(name, shows) }) {
		nodes = append(nodes, []string{n.Kind, n.Name})
	}
	c.asked(c.treePath(name), ".result.nodes[] | [.kind, .name]", nodes)
	// A terminal repeats what is typed, and ends lines in its own way.
	outcome := strings.NewReplacer(env.TerminalCommand, "", "\r", "").Replace(c.testTerminal(c.t, name))
	c.said[env.TerminalCommand] = strings.TrimSpace(outcome) + "\n"
}

// restartPrincipal shows that a page that is open during a restart of the principal is
// told of changes as before.
func (c *argoCommands) restartPrincipal(name string, shows func(child string)) {
	ctx, spoke := c.t.Context(), env.RedisClient(c.t, c.spoke.Redis.Address, 3)
	subscribed := func(want bool) {
		c.t.Helper()
		env.Eventually(c.t, fmt.Sprintf("the page is subscribed on the spoke: %t", want), func() error {
			channels, err := spoke.PubSubChannels(ctx, "app|*|"+name+"|*").Result()
			if err == nil && (len(channels) > 0) != want {
				err = fmt.Errorf("the channels are %v", channels)
			}
			return err
		})
	}
	subscribed(true)
	if err := c.FrontDoor.Principal.Stop(ctx); err != nil {
		c.t.Fatal(err)
	}
	subscribed(false)
	if err := c.FrontDoor.Principal.Start(ctx); err != nil {
		c.t.Fatal(err)
	}
	subscribed(true)
	shows("third-child")
}

// asked keeps what the API answered, as jq prints it with a filter.
func (c *argoCommands) asked(path, filter string, rows [][]string) {
	var out strings.Builder
	for _, row := range rows {
		line, err := json.Marshal(row)
		if err != nil {
			c.t.Fatal(err)
		}
		out.Write(append(line, '\n'))
	}
	command := `curl --silent --header "Authorization: Bearer $TOKEN" "` + c.session.Base + path + `" | jq --compact-output '` + filter + `'`
	c.said[c.neutral(command)] = c.neutral(out.String())
}

// refreshed waits until the hub has the live state with a text.
func (c *argoCommands) refreshed(name, text string) {
	c.t.Helper()
	env.Eventually(c.t, "the hub has the live state with "+text, func() error {
		out, err := c.argo.HubArgo.CLI(c.t.Context(), "app", "diff", c.app(name), "--exit-code=false")
		if err == nil && !strings.Contains(out, text) {
			err = errors.New(out)
		}
		return err
	})
	c.run([]string{text}, "app", "diff", c.app(name), "--exit-code=false")
}

// around is what is not about one Application.
func (c *argoCommands) around() {
	env.Eventually(c.t, "the cluster is shown as connected, with its Applications", func() error {
		out, err := c.argo.HubArgo.CLI(c.t.Context(), "cluster", "get", c.agent)
		if err == nil && !(strings.Contains(out, "Successful") && strings.Contains(out, "applicationsCount: 1")) {
			err = errors.New(out)
		}
		return err
	})
	c.run([]string{c.agent, "Successful"}, "cluster", "list")
	c.run([]string{"Successful", "applicationsCount: 1"}, "cluster", "get", c.agent)
	c.run([]string{c.project}, "proj", "list")
	c.run([]string{c.project}, "proj", "get", c.project)
	if c.agent == env.Managed { // an autonomous one has its own
		c.projects()
	}
	file := c.Harness.Path("applicationset.yaml")
	if err := os.WriteFile(file, []byte(`apiVersion: argoproj.io/v1alpha1
kind: ApplicationSet
metadata: {name: shops, namespace: `+c.namespace+`}
spec:
  goTemplate: true
  generators:
  - clusters: {selector: {matchLabels: {argocd.argoproj.io/secret-type: cluster}}}
  template:
    metadata: {name: "{{.name}}-shop"}
    spec:
      project: `+c.project+`
      source: {repoURL: "`+c.argo.Repository.URL+`", path: `+harness.GuestbookPath+`, targetRevision: `+harness.Branch+`}
      destination: {name: "{{.name}}", namespace: shop}
`), 0o600); err != nil {
		c.t.Fatal(err)
	}
	c.run([]string{c.agent + "-shop"}, "appset", "generate", file)
}

// projects goes through the life of one, which the spoke has too.
func (c *argoCommands) projects() {
	const name, other = "team", "https://git.example.org/other.git"
	there := c.Spokes[c.agent].Resource(harness.AppProjects, harness.ArgoCDNamespace)
	sources := func(want ...any) {
		c.t.Helper()
		env.Eventually(c.t, "the spoke has the project", func() error { return env.FieldIs(c.t.Context(), there, name, want, "spec", "sourceRepos") })
	}
	c.run(nil, "proj", "create", name, "--dest", c.FrontDoor.URL+"/agents/"+c.agent+",shop", "--src", c.argo.Repository.URL, "--source-namespaces", c.agent)
	sources(c.argo.Repository.URL)
	c.run(nil, "proj", "add-source", name, other)
	sources(c.argo.Repository.URL, other)
	c.run(nil, "proj", "delete", name)
	env.Eventually(c.t, "the spoke has it no more", func() error { return env.Gone(c.t.Context(), there, name) })
}

// termination ends an operation that does not end by itself.
func (c *argoCommands) termination() {
	const name = "slow"
	if _, err := c.argo.Repository.Commit(c.t.Context(), "a hook", map[string]string{
		env.SlowPath + "/configmap.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: slow}\n",
		env.SlowPath + "/hook.yaml": `apiVersion: v1
kind: Pod
metadata:
  name: ` + env.HookPod + `
  annotations: {argocd.argoproj.io/hook: PreSync}
spec:
  restartPolicy: Never
  nodeSelector: {nowhere: "true"} # so nobody runs it
  containers:
  - {name: hold, image: "registry.invalid/hold:1"}
`,
	}); err != nil {
		c.t.Fatal(err)
	}
	c.create(name, env.SlowPath)
	app := c.app(name)
	c.run(nil, "app", "sync", app, "--async")
	env.Eventually(c.t, "the operation holds in its hook", func() error {
		message, _, _ := unstructured.NestedString(env.Get(c.t, c.onHub(), name).Object, "status", "operationState", "message")
		if !strings.Contains(message, env.HookPod) {
			return fmt.Errorf("it says %q", message)
		}
		return nil
	})
	c.run([]string{"Phase:              Running"}, "app", "get", app, "--show-operation")
	c.run([]string{"operation terminating"}, "app", "terminate-op", app)
	env.Eventually(c.t, "the operation has ended", func() error {
		return env.FieldIs(c.t.Context(), c.onHub(), name, "Failed", "status", "operationState", "phase")
	})
}

// end deletes them.
func (c *argoCommands) end() {
	ctx := c.t.Context()
	before := map[string]metav1.Object{}
	for _, name := range []string{"shop", "slow"} {
		before[name] = env.Get(c.t, c.onHub(), name)
		c.run([]string{"deleted"}, "app", "delete", c.app(name), "--yes")
	}
	for name, was := range before {
		if c.agent == env.Managed {
			env.Eventually(c.t, name+" is gone", func() error { return env.Gone(ctx, c.onHub(), name) })
			env.Eventually(c.t, "its workloads are", func() error { return env.Gone(ctx, c.Spokes[c.agent].Resource(env.Deployments, name), "guestbook") })
			continue
		}
		env.Eventually(c.t, name+" is shown again", func() error {
			o, err := c.onHub().Get(ctx, name, metav1.GetOptions{})
			if err == nil && o.GetUID() == was.GetUID() {
				err = errors.New("it is still there")
			}
			return err
		})
	}
	if c.agent == env.Autonomous {
		env.Get(c.t, c.Spokes[c.agent].Resource(env.Deployments, "shop"), "guestbook") // it is the spoke's
		return
	}
	c.run(nil, "app", "list")
}

const (
	// docsLines is how many lines of an output the document shows.
	docsLines = 24
	consoleOf = "```console\n$ "
	fence     = "```\n"
)

// document holds the document against the commands that ran: it shows each of those
// that it names, and with -update what they said.
func (c *argoCommands) document(file string) {
	raw, err := os.ReadFile(filepath.FromSlash(file))
	if err != nil {
		c.t.Fatal(err)
	}
	parts := strings.Split(string(raw), consoleOf)
	named := map[string]bool{}
	for i, part := range parts[1:] {
		command, rest, found := strings.Cut(part, "\n")
		_, after, ended := strings.Cut(rest, fence)
		if !found || !ended {
			c.t.Fatalf("%s: the block of %q does not end", file, command)
		}
		out, ran := c.said[command]
		if !ran {
			c.t.Errorf("%s shows %q, which did not run; these did:\n%s", file, command, strings.Join(slices.Sorted(maps.Keys(c.said)), "\n"))
			continue
		}
		named[command] = true
		parts[i+1] = command + "\n" + shortened(out) + fence + after
	}
	for command := range c.said {
		words := strings.Fields(command)
		if word := strings.Join(words[:min(3, len(words))], " "); !slices.ContainsFunc(slices.Collect(maps.Keys(named)), func(n string) bool { return strings.HasPrefix(n, word) }) {
			c.t.Errorf("%s does not show %q", file, word)
		}
	}
	if golden.Updating() && !c.t.Failed() {
		if err := os.WriteFile(filepath.FromSlash(file), []byte(strings.Join(parts, consoleOf)), 0o644); err != nil { //nolint:gosec // for everybody
			c.t.Fatal(err)
		}
	}
}

// shortened is an output as the document has it.
func shortened(out string) string {
	lines := strings.Split(strings.TrimRight(out, "\n"), "\n")
	if len(lines) > docsLines {
		lines = append(lines[:docsLines:docsLines], "…")
	}
	var b strings.Builder
	for _, line := range lines {
		if line = strings.TrimRight(line, " \t"); line != "" || b.Len() > 0 {
			b.WriteString(line + "\n")
		}
	}
	return b.String()
}
