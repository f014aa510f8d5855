//go:build linux && matrix

package live

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/argomesh/argomesh/test/e2e/internal/env"
)

// away shows an Application while its agent is away: as it was last, and as of when.
func (c *argoCommands) away(name string) {
	t, ctx, app, agent := c.t, c.t.Context(), c.app(name), c.Agents[c.agent]
	c.refreshed(name, "good morning") // what git says, and the spoke does not
	c.liveArgoEnv.tree(t, name, node{Kind: "Pod"})
	if err := agent.Kill(); err != nil {
		t.Fatal(err)
	}
	env.Eventually(t, "the cluster is shown as not connected", func() error {
		out, err := c.argo.HubArgo.CLI(ctx, "cluster", "get", c.agent)
		if err == nil && !strings.Contains(out, "is not connected") {
			err = errors.New(out)
		}
		return err
	})
	c.run([]string{"Failed", "agent " + c.agent + " is not connected since "}, "cluster", "list", "--output", "wide")
	marked := c.marked(name)
	for _, kind := range []string{"ConfigMap", "Deployment", "Service"} {
		if !slices.ContainsFunc(marked, func(row []string) bool { return row[0] == kind }) {
			t.Errorf("the tree does not say how old the %s is: %v", kind, marked)
		}
	}
	c.asked(c.agedTreePath(name), `.nodes[] | . as $n | .info[]? | select(.name == "Last known") | [$n.kind, $n.name, .value]`, marked)
	c.run([]string{"Deployment/guestbook", "ReplicaSet/guestbook-", "Pod/guestbook-"}, "app", "get", app, "--output", "tree=detailed")
	c.run([]string{"Pod", "ReplicaSet", "Deployment"}, "app", "resources", app, "--output", "tree")
	c.run([]string{"good morning"}, "app", "diff", app, "--exit-code=false")
	c.run([]string{"kind: Deployment", "greeting: hello"}, "app", "manifests", app, "--source", "live")
	c.run([]string{"kind: Deployment", "argomesh.io/last-known: ", "agent " + c.agent + " is away"}, "app", "get-resource", app, "--kind", "Deployment", "--resource-name", "guestbook", "--output", "yaml")
	if err := agent.Start(ctx); err != nil {
		t.Fatal(err)
	}
	env.Eventually(t, "the tree is that of now", func() error {
		if marked := c.aged(name); len(marked) > 0 {
			return fmt.Errorf("it says %v", marked)
		}
		return nil
	})
	if err := agent.Reachable(ctx); err != nil {
		t.Fatal(err)
	}
}

// agedTreePath is that of an Application's tree as it is known now.
func (c *argoCommands) agedTreePath(name string) string {
	return "applications/" + name + "/resource-tree?appNamespace=" + c.namespace
}

// marked waits until the tree of an Application says how old it is, and returns kind,
// name and age of what does.
func (c *argoCommands) marked(name string) (rows [][]string) {
	c.t.Helper()
	env.Eventually(c.t, "the tree says as of when it is", func() error {
		if rows = c.aged(name); len(rows) == 0 {
			return errors.New("it does not")
		}
		return nil
	})
	for _, row := range rows {
		if at, _, err := markedAt(row[2], c.agent); err != nil || time.Since(at) < 0 || time.Since(at) > time.Hour {
			c.t.Errorf("%v: %v", row, err)
		}
	}
	return rows
}

// aged returns kind, name and age of what says so in the tree of an Application.
func (c *argoCommands) aged(name string) (rows [][]string) {
	c.t.Helper()
	var tree struct {
		Nodes []struct {
			Kind, Name string
			Info       []struct{ Name, Value string }
		}
	}
	if err := c.session.Call(c.t.Context(), http.MethodGet, c.agedTreePath(name), nil, &tree); err != nil {
		c.t.Fatal(err)
	}
	for _, n := range tree.Nodes {
		for _, i := range n.Info {
			if i.Name == "Last known" {
				rows = append(rows, []string{n.Kind, n.Name, i.Value})
			}
		}
	}
	return rows
}
