package main

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/argomesh/argomesh/cmd/agentctl/internal/cli"
)

// deleting says of each command whether it may delete workloads, and how. A new command
// fails until it is said of it.
var deleting = map[string]string{
	"agent accept-deletions":     "lets held deletions happen",
	"agent delete":               "with a cascade",
	"agent edit":                 "by what an Agent may say",
	"agent keep-workloads":       "the Applications go, whose workloads stay",
	"agent release-mirrors":      "a child application may go to its agent, and with its workloads",
	"agent rewrite-destinations": "Applications go to another cluster",
	"hub set-mapping":            "what is released goes without its workloads; what an agent newly gets is deployed, and may prune",
	"agent set":                  "by what an Agent may say",
	"agent resume":               "what waited for the agent is done",
	"hub uninstall":              "the pods of the principal, and what its chart made; not those of Applications",
	"spoke uninstall":            "the pods of the agent, and what its chart made; not those of Applications",
	"hub install":                "",
	"connectivity test":          "",
	"kubeconfig":                 "",
	"spoke install":              "",
	"spoke upgrade":              "",
	"agent suspend":              "",
	"agent values":               "",
	"agent create":               "",
	"agent get":                  "",
	"agent list":                 "",
	"agent revoke-tokens":        "",
	"agent role":                 "",
	"bundle":                     "",
	"check hub":                  "",
	"check path":                 "",
	"check spoke":                "",
	"envoy bootstrap":            "",
	"identity doctor":            "",
	"identity federate":          "",
	"identity list":              "",
	"identity register":          "",
	"identity revoke":            "",
	"identity show":              "",
	"mesh apply":                 "",
	"mesh diff":                  "",
	"mesh render":                "",
	"mesh verify":                "",
	"explain":                    "",
	"status":                     "",
	"version":                    "",
}

func TestEachCommandSaysWhetherItDeletesWorkloads(t *testing.T) {
	var seen []string
	var walk func(cmd *cobra.Command)
	walk = func(cmd *cobra.Command) {
		for _, below := range cmd.Commands() {
			walk(below)
		}
		if cmd.HasSubCommands() {
			return
		}
		path := strings.TrimPrefix(cmd.CommandPath(), "agentctl ")
		seen = append(seen, path)
		how, said := deleting[path]
		if !said {
			t.Errorf("%q: the table does not say whether it may delete workloads", path)
		}
		if has := cmd.Flags().Lookup("yes") != nil; has != (how != "") {
			t.Errorf("%q: it has --yes: %t, and may delete workloads: %q", path, has, how)
		}
	}
	walk(newRootCommand(cli.Streams{In: strings.NewReader("")}))
	for path := range deleting {
		if !slices.Contains(seen, path) {
			t.Errorf("%q is no command", path)
		}
	}
}

// docs/deletes.md has each of them, and no other.
func TestTheDocumentHasEachCommandThatDeletesWorkloads(t *testing.T) {
	text, err := os.ReadFile("../../docs/deletes.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, found := strings.Cut(string(text), "\n## Commands that may delete workloads\n")
	if section, _, _ = strings.Cut(section, "\n## "); !found {
		t.Fatal("docs/deletes.md has no such section")
	}
	var listed []string
	for line := range strings.Lines(section) {
		if first, is := strings.CutPrefix(line, "| `"); is {
			commands, _, _ := strings.Cut(first, " |")
			for command := range strings.SplitSeq(commands, ", ") {
				listed = append(listed, strings.Trim(command, "`"))
			}
		}
	}
	for path, how := range deleting {
		if has := slices.Contains(listed, path); has != (how != "") {
			t.Errorf("%q: docs/deletes.md lists it: %t, and it may delete workloads: %q", path, has, how)
		}
	}
	for _, path := range listed {
		if _, known := deleting[path]; !known {
			t.Errorf("docs/deletes.md lists %q, which is no command", path)
		}
	}
}

// A cascade needs --yes off a terminal, whatever standard input says, and shows what goes.
func TestDeleteNeedsYesForACascade(t *testing.T) {
	const shown = "With agent edge-1 go 2 Applications that it has, with their workloads on the spoke.\n" +
		"With its cluster as destination the hub has edge-1/back, edge-1/shop.\n"
	const refused = "there is no terminal to ask on: say --yes"
	leaving := map[string]any{"deletionTimestamp": "2026-11-23T06:00:00Z", "finalizers": []any{"argomesh.io/agent"}}
	for name, test := range map[string]struct {
		spec, meta map[string]any
		flags      string
		said       string // on a terminal
		says, err  string
		deletes    bool
	}{
		"asked for, off a terminal":            {flags: "--cascade", says: shown, err: refused},
		"by its policy, off a terminal":        {spec: map[string]any{"deletionPolicy": "cascade"}, says: shown, err: refused},
		"with --yes":                           {flags: "--cascade --yes", deletes: true},
		"agreed to on a terminal":              {flags: "--cascade", said: "y\n", says: shown + `Delete agent "edge-1", and on its spoke all its Applications with their workloads? (y/N): `, deletes: true},
		"not agreed to":                        {flags: "--cascade", said: "n\n", says: "Cancelled, agent edge-1 stays."},
		"called off":                           {spec: map[string]any{"deletionPolicy": "cascade"}, flags: "--orphan", deletes: true},
		"which deletes none":                   {deletes: true},
		"that goes on already":                 {spec: map[string]any{"deletionPolicy": "cascade"}, meta: leaving},
		"of one that was leaving as an orphan": {meta: leaving, flags: "--cascade", err: refused},
	} {
		t.Run(name, func(t *testing.T) {
			hub, url := newFakeHub(t, test.spec, test.meta, map[string]any{"connected": true, "counts": map[string]any{"applications": 2}})
			hub.lists["/applications"] = []map[string]any{application("back"), application("shop")}
			args := append(strings.Fields("agent delete edge-1 --wait=false --server "+url), strings.Fields(test.flags)...)
			runs := func() (string, string, error) { return agentctl(t, args...) }
			if test.said != "" {
				runs = func() (string, string, error) { return talk(t, test.said, args...) }
			}
			_, note, err := runs()
			if !strings.Contains(note, test.says) {
				t.Errorf("it says\n%s\nwant\n%s", note, test.says)
			}
			switch {
			case test.err == "" && err != nil:
				t.Error(err)
			case test.err != "" && (err == nil || !strings.Contains(err.Error(), test.err)):
				t.Errorf("error is %v, want %q", err, test.err)
			}
			if got := slices.ContainsFunc(hub.writes, func(w string) bool { return strings.HasPrefix(w, "DELETE") }); got != test.deletes {
				t.Errorf("the hub was told %q", hub.writes)
			}
			if test.err != "" && len(hub.writes) > 0 {
				t.Errorf("the hub was told %q", hub.writes)
			}
		})
	}
}

// Each edit by which workloads may go needs --yes off a terminal, and says how; no other does.
func TestEditNeedsYesWhereWorkloadsMayGo(t *testing.T) {
	const along = "resources-finalizer.argocd.argoproj.io"
	leaving := map[string]any{"deletionTimestamp": "2026-11-23T06:00:00Z", "finalizers": []any{"argomesh.io/agent"}}
	held := map[string]any{"deletionsHeld": map[string]any{"id": "hold-1", "since": "2026-11-23T06:00:00Z", "reason": "TooMany", "total": 12, "withWorkloads": 11}}
	env := map[string]any{"labels": map[string]any{"env": "prod"}, "suspended": false, "cascadeHold": 10}
	elsewhere := map[string]any{"mapping": map[string]any{"namespaces": []any{map[string]any{"spoke": "", "hub": "team"}}}}
	for name, test := range map[string]struct {
		spec, meta, status map[string]any
		edit               string
		sets, apps         []map[string]any
		denied             string
		without            bool   // the hub has no Applications
		peril              string // empty when no one is asked
	}{
		"cascade of a leaving Agent":  {spec: map[string]any{"deletionPolicy": "orphan"}, meta: leaving, edit: "s/: orphan/: cascade/", peril: "the Agent is being deleted: with deletionPolicy cascade"},
		"cascade of one that stays":   {spec: map[string]any{"deletionPolicy": "orphan"}, edit: "s/: orphan/: cascade/"},
		"cascade called off":          {spec: map[string]any{"deletionPolicy": "cascade"}, meta: leaving, edit: "s/: cascade/: orphan/"},
		"a higher hold":               {spec: env, status: held, edit: "s/cascadeHold: 10/cascadeHold: 12/", peril: "with cascadeHold 12 instead of 10 what is held need not wait any more: 11 deletions"},
		"no hold":                     {spec: env, status: held, edit: "s/cascadeHold: 10/cascadeHold: 0/", peril: "with cascadeHold 0 instead of 10"},
		"a lower hold":                {spec: env, status: held, edit: "s/cascadeHold: 10/cascadeHold: 5/"},
		"a higher hold, nothing held": {spec: env, edit: "s/cascadeHold: 10/cascadeHold: 12/"},
		"an acceptance":               {meta: map[string]any{"annotations": map[string]any{"argomesh.io/accept-deletions": "no"}}, status: held, edit: "s/accept-deletions: .*$/accept-deletions: hold-1/", peril: "lets 12 deletions happen"},
		"let in, deletions wait":      {spec: map[string]any{"suspended": true}, apps: []map[string]any{application("shop", along), application("stays")}, edit: "s/suspended: true/suspended: false/", peril: "what waits for that: edge-1/shop"},
		"let in, none wait":           {spec: map[string]any{"suspended": true}, apps: []map[string]any{application("stays")}, edit: "s/suspended: true/suspended: false/"},
		"let in, without Argo CD":     {spec: map[string]any{"suspended": true}, without: true, edit: "s/suspended: true/suspended: false/"},
		"let in, nobody knows":        {spec: map[string]any{"suspended": true}, denied: "/applications", edit: "s/suspended: true/suspended: false/", peril: "whether Applications wait to be deleted with their workloads cannot be read"},
		"another identity":            {apps: []map[string]any{application("shop", along)}, edit: "s#spiffe://a/b#spiffe://a/c#", peril: "what waits for that: edge-1/shop"},
		"a namespace more":            {spec: elsewhere, apps: []map[string]any{application("shop", along), application("stays")}, edit: "s/hub: team/hub: edge-1/", peril: "the agent gets namespaces in which Applications wait to be deleted with their workloads: edge-1/shop"},
		"a namespace, nobody knows":   {spec: elsewhere, denied: "/applications", edit: "s/hub: team/hub: edge-1/", peril: "whether Applications wait to be deleted with their workloads cannot be read"},
		"a namespace, none wait":      {spec: elsewhere, apps: []map[string]any{application("stays")}, edit: "s/hub: team/hub: edge-1/"},
		"kept out":                    {spec: env, apps: []map[string]any{application("shop", along)}, edit: "s/suspended: false/suspended: true/"},
		"no longer selected":          {spec: env, sets: []map[string]any{applicationSet("addons", map[string]any{"env": "prod"}, nil)}, edit: "s/env: prod/env: test/", peril: "ApplicationSet argocd/addons may not select the cluster by its new labels"},
		"selected as before":          {spec: env, sets: []map[string]any{applicationSet("addons", nil, nil)}, edit: "s/env: prod/env: test/"},
		"selected from now on":        {spec: env, sets: []map[string]any{applicationSet("addons", map[string]any{"env": "test"}, nil)}, edit: "s/env: prod/env: test/"},
		"no longer, but it keeps":     {spec: env, sets: []map[string]any{applicationSet("addons", map[string]any{"env": "prod"}, map[string]any{"preserveResourcesOnDeletion": true})}, edit: "s/env: prod/env: test/"},
		"no longer, it never deletes": {spec: env, sets: []map[string]any{applicationSet("addons", map[string]any{"env": "prod"}, map[string]any{"applicationsSync": "create-update"})}, edit: "s/env: prod/env: test/"},
		"labels, and nobody knows":    {spec: env, denied: "/applicationsets", edit: "s/env: prod/env: test/", peril: "whether an ApplicationSet selects the cluster by its labels cannot be read"},
		"labels, without Argo CD":     {spec: env, edit: "s/env: prod/env: test/"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("TMPDIR", t.TempDir())
			t.Setenv("KUBE_EDITOR", "sed -i '"+test.edit+"'")
			for _, yes := range []bool{false, true} {
				hub, url := newFakeHub(t, test.spec, test.meta, test.status)
				if !test.without {
					hub.lists["/applications"] = test.apps
				}
				if test.sets != nil {
					hub.lists["/applicationsets"] = test.sets
				}
				if test.denied != "" {
					hub.denied = []string{test.denied}
				}
				args := []string{"agent", "edit", "edge-1", "--server", url}
				if yes {
					args = append(args, "--yes")
				}
				_, note, err := agentctl(t, args...)
				refused := err != nil && strings.Contains(err.Error(), "there is no terminal to ask on: say --yes; your version is in ")
				if want := test.peril != "" && !yes; refused != want || !want && err != nil {
					t.Fatalf("with --yes %t: %v", yes, err)
				}
				if !strings.Contains(note, test.peril) {
					t.Errorf("it says %q, want %q", note, test.peril)
				}
				if written := len(hub.writes) > 0; written == refused {
					t.Errorf("with --yes %t the hub was told %q", yes, hub.writes)
				}
			}
		})
	}
}
