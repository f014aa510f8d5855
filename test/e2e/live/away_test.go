//go:build linux

package live

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/argomesh/argomesh/test/e2e/internal/env"
)

// markLayout is how the mark of a tree has times, and markText the mark.
const markLayout = "15:04:05 UTC on 2006-01-02"

var markText = regexp.MustCompile(`^as of (.*), agent (.*) (?:is away|does not answer) since (.*)$`)

// markedAt returns as of when a mark is, and since when the agent is away that it names.
func markedAt(mark, agent string) (at, since time.Time, err error) {
	parts := markText.FindStringSubmatch(mark)
	if len(parts) != 4 || parts[2] != agent {
		return at, since, fmt.Errorf("the mark is %q", mark)
	}
	var atErr, sinceErr error
	at, atErr = time.Parse(markLayout, parts[1])
	since, sinceErr = time.Parse(markLayout, parts[3])
	return at, since, errors.Join(atErr, sinceErr)
}

// shownWithin is how soon a page that is open says that its agent is away.
const shownWithin = 25 * time.Second

// treeMark is the mark in a tree, as argocd-server sends it.
var treeMark = regexp.MustCompile(`"name":"Last known","value":"([^"]*)"`)

// testFrozenPage follows the tree as the UI does, while the agent does not answer for a
// time: the open page says so, and since when, and shows the truth again afterwards.
func (w *liveArgoEnv) testFrozenPage(t *testing.T, name string) {
	f, agent := w.followTree(t, name), w.Agents[w.agent]
	shows := func(child string) string {
		t.Helper()
		w.addChild(t, name, child)
		return f.Until(t, `"name":"`+child+`"`)
	}
	if line := shows("before"); treeMark.MatchString(line) {
		t.Fatalf("the tree of an agent that is there is marked: %s", line)
	}
	resource := []string{"app", "get-resource", w.agent + "/" + name, "--kind", "Deployment", "--resource-name", "guestbook", "--output", "yaml"}
	if _, err := w.argo.HubArgo.CLI(t.Context(), "app", "diff", w.agent+"/"+name, "--exit-code=false"); err != nil { // it reads what the page reads
		t.Fatal(err)
	}
	if _, err := w.argo.HubArgo.CLI(t.Context(), resource...); err != nil { // the kinds of the spoke are known from there
		t.Fatal(err)
	}
	stopped := time.Now()
	if err := agent.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	thaw := sync.OnceValue(func() error { return agent.Signal(syscall.SIGCONT) })
	t.Cleanup(func() { _ = thaw() }) // else it does not stop
	line := f.Until(t, `"Last known"`)
	if took := time.Since(stopped); took > shownWithin {
		t.Errorf("it shows after %s", took)
	}
	mark := treeMark.FindStringSubmatch(line)
	if len(mark) != 2 {
		t.Fatalf("the tree is %s", line)
	}
	at, since, err := markedAt(mark[1], w.agent)
	if begin := stopped.Add(-time.Minute); err != nil || at.Before(begin) || at.After(time.Now()) || since.Before(begin) || since.After(time.Now()) {
		t.Errorf("%s: %v", mark[1], err)
	}
	if out, err := w.argo.HubArgo.CLI(t.Context(), resource...); err != nil || !strings.Contains(out, "argomesh.io/last-known") || !strings.Contains(out, "kind: Deployment") {
		t.Errorf("a Deployment that runs is shown as %s, %v", out, err)
	}
	if err := thaw(); err != nil {
		t.Fatal(err)
	}
	if line := shows("after"); strings.Contains(line, "Last known") {
		t.Errorf("the tree of an agent that is back is marked: %s", line)
	}
	if err := agent.Reachable(t.Context()); err != nil { // for the tests that follow
		t.Fatal(err)
	}
}

// testUnopened shows an Application that no one has opened while its agent is away: its tree with
// the mark, and its live state, by which Argo CD compares. No test may have asked for anything of it before.
func (w *liveArgoEnv) testUnopened(t *testing.T, name string) {
	ctx, agent := t.Context(), w.Agents[w.agent]
	kept := env.RedisClient(t, w.argo.HubArgo.Redis.Address, 3)
	env.Eventually(t, "what nobody has opened is kept as it is now", func() error {
		for family, want := range map[string]struct {
			text  string
			times int
		}{"resources-tree": {`"kind":"Pod"`, 1}, "managed-resources": {`"liveState":"{`, 3}} {
			found, err := kept.Keys(ctx, "argomesh|last|value|*|app|"+family+"|"+w.agent+"_"+name+"|*").Result()
			if err != nil || len(found) != 1 {
				return fmt.Errorf("of %s there are %v, %w", family, found, err)
			}
			value, err := kept.Get(ctx, found[0]).Result()
			if err != nil {
				return err
			}
			if text := gunzipped(t, value); strings.Count(text, want.text) < want.times {
				return fmt.Errorf("%s has not %d times %s: %s", family, want.times, want.text, text)
			}
		}
		return nil
	})
	env.Eventually(t, "the kinds of its objects are kept", func() error {
		found, err := kept.Keys(ctx, "argomesh|reply|"+w.agent+"|*|value|*").Result()
		for _, key := range found {
			if reply, err := kept.Get(ctx, key).Result(); err == nil && strings.Contains(reply, `"path":"/apis/apps/v1"`) {
				return nil
			}
		}
		return fmt.Errorf("they are not among %v, %w", found, err)
	})
	if err := agent.Kill(); err != nil {
		t.Fatal(err)
	}
	path := "applications/" + name + "/resource-tree?appNamespace=" + w.namespace
	var tree json.RawMessage
	env.Eventually(t, "the tree is there, and marked", func() error {
		err := w.session.Call(ctx, http.MethodGet, path, nil, &tree)
		if err == nil && !treeMark.Match(tree) {
			err = fmt.Errorf("it is %s", tree)
		}
		return err
	})
	for _, want := range []string{`"kind":"Pod"`, `"kind":"ReplicaSet"`, `"kind":"Service"`} {
		if !strings.Contains(string(tree), want) {
			t.Errorf("there is no %s in %s", want, tree)
		}
	}
	if _, _, err := markedAt(string(treeMark.FindSubmatch(tree)[1]), w.agent); err != nil {
		t.Error(err)
	}
	app := w.namespace + "/" + name
	if out, err := w.argo.HubArgo.CLI(ctx, "app", "diff", app, "--exit-code=false"); err != nil || strings.Contains(out, "=====") {
		t.Errorf("the differences are %s, %v", out, err)
	}
	if out, err := w.argo.HubArgo.CLI(ctx, "app", "manifests", app, "--source", "live"); err != nil || !strings.Contains(out, "kind: Deployment") {
		t.Errorf("its live state is %s, %v", out, err)
	}
	resource := []string{"app", "get-resource", app, "--kind", "Deployment", "--resource-name", "guestbook", "--output", "yaml"}
	if out, err := w.argo.HubArgo.CLI(ctx, resource...); err != nil || !strings.Contains(out, "argomesh.io/last-known") || !strings.Contains(out, "kind: Deployment") {
		t.Errorf("a Deployment of which nobody has seen anything is shown as %s, %v", out, err)
	}
	if err := agent.Start(ctx); err != nil {
		t.Fatal(err)
	}
	if err := agent.Reachable(ctx); err != nil { // for the tests that follow
		t.Fatal(err)
	}
}
