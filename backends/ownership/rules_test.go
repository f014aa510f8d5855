package ownership

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/argomesh/argomesh/backends/object"
	"github.com/argomesh/argomesh/backends/object/objecttest"
	"github.com/argomesh/argomesh/backends/operations"
	"github.com/argomesh/argomesh/stream"
)

func TestRulesKeys(t *testing.T) {
	app := func(namespace, name string) stream.ResourceKey {
		return stream.ResourceKey{Kind: stream.Application, Namespace: namespace, Name: name}
	}
	project := func(namespace, name string) stream.ResourceKey {
		return stream.ResourceKey{Kind: stream.AppProject, Namespace: namespace, Name: name}
	}
	three := []stream.EntryKey{
		{Collection: stream.Applications, Name: "a"},
		{Collection: stream.Commands, Name: "a"},
		{Collection: stream.Statuses, Name: "a"},
	}
	four := append(slices.Clone(three), stream.EntryKey{Collection: stream.Children, Name: "a"})
	tests := map[string]struct {
		side stream.Side
		mode stream.Mode
		key  stream.ResourceKey
		want []stream.EntryKey
	}{
		"an Application in the agent's namespace of the hub":            {stream.Hub, stream.Managed, app("edge-1", "a"), four},
		"an Application in Argo CD's namespace of the hub":              {stream.Hub, stream.Managed, app("argocd", "a"), nil},
		"an Application of another agent":                               {stream.Hub, stream.Managed, app("edge-2", "a"), nil},
		"an Application in Argo CD's namespace of the spoke":            {stream.Spoke, stream.Managed, app("argocd", "a"), four},
		"an Application of an autonomous spoke has no part in children": {stream.Spoke, stream.Autonomous, app("argocd", "a"), three},
		"an Application elsewhere on the spoke":                         {stream.Spoke, stream.Managed, app("edge-1", "a"), nil},
		"a project of the hub": {stream.Hub, stream.Managed, project("argocd", "p"),
			[]stream.EntryKey{{Collection: stream.AppProjects, Name: "p"}}},
		"a project in the agent's namespace": {stream.Hub, stream.Managed, project("edge-1", "p"), nil},
		"a project of the spoke": {stream.Spoke, stream.Autonomous, project("argocd", "p"),
			[]stream.EntryKey{{Collection: stream.AppProjects, Name: "p"}}},
		"the mirror of a project carries the agent's prefix": {stream.Hub, stream.Autonomous, project("argocd", "edge-1-p"),
			[]stream.EntryKey{{Collection: stream.AppProjects, Name: "p"}}},
		"a project without the prefix is the hub's own":     {stream.Hub, stream.Autonomous, project("argocd", "default"), nil},
		"a project that is named like the prefix and ends":  {stream.Hub, stream.Autonomous, project("argocd", "edge-1-"), nil},
		"another kind in the namespace of the Applications": {stream.Hub, stream.Managed, stream.ResourceKey{Kind: "Secret", Namespace: "edge-1", Name: "a"}, nil},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			r := ruleSet(t, test.side, test.mode)
			got := r.Keys(test.key)
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("Keys(%s) (-want +got)\n%s", test.key, diff)
			}
			for _, entry := range got {
				if back, ok := r.Local(entry); !ok || back != test.key {
					t.Errorf("Local(%s) = %s, %t, want the way back to %s", entry, back, ok, test.key)
				}
			}
		})
	}
}

func TestRulesLocal(t *testing.T) {
	tests := map[string]struct {
		side stream.Side
		mode stream.Mode
		key  stream.EntryKey
		want string // empty: the peer may not name it
	}{
		"a status is kept in the agent's namespace of the hub": {stream.Hub, stream.Managed,
			stream.EntryKey{Collection: stream.Statuses, Name: "a"}, "Application edge-1/a"},
		"an Application is kept in Argo CD's namespace of the spoke": {stream.Spoke, stream.Managed,
			stream.EntryKey{Collection: stream.Applications, Name: "a"}, "Application argocd/a"},
		"a child application is kept in the agent's namespace of the hub": {stream.Hub, stream.Managed,
			stream.EntryKey{Collection: stream.Children, Name: "a"}, "Application edge-1/a"},
		"a child application of an autonomous spoke": {stream.Hub, stream.Autonomous,
			stream.EntryKey{Collection: stream.Children, Name: "a"}, ""},
		"a project keeps its name on a managed spoke": {stream.Spoke, stream.Managed,
			stream.EntryKey{Collection: stream.AppProjects, Name: "p"}, "AppProject argocd/p"},
		"an autonomous project gets the agent's prefix": {stream.Hub, stream.Autonomous,
			stream.EntryKey{Collection: stream.AppProjects, Name: "p"}, "AppProject argocd/edge-1-p"},
		"an entry of a namespace": {stream.Hub, stream.Autonomous,
			stream.EntryKey{Collection: stream.Applications, Namespace: "kube-system", Name: "a"}, ""},
		"a project of a namespace": {stream.Spoke, stream.Managed,
			stream.EntryKey{Collection: stream.AppProjects, Namespace: "argocd", Name: "p"}, ""},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got, ok := ruleSet(t, test.side, test.mode).Local(test.key)
			if ok != (test.want != "") {
				t.Fatalf("Local(%s) = %s, %t", test.key, got, ok)
			}
			if ok && got.String() != test.want {
				t.Errorf("Local(%s) = %s, want %s", test.key, got, test.want)
			}
		})
	}
}

// TestRulesContentOfAnApplication checks what leaves the owner's side, down to
// the bytes: they are hashed, and the hash is compared across releases.
func TestRulesContentOfAnApplication(t *testing.T) {
	toAgent := m{"project": "default", "destination": m{"name": "edge-1", "namespace": "web"}}
	tests := map[string]struct {
		side stream.Side
		mode stream.Mode
		meta m
		spec m
		want string // empty: nothing is sent
		leav bool
	}{
		"a spec addressed by the agent's name": {stream.Hub, stream.Managed, nil, toAgent,
			`{"annotations":{},"labels":{},"spec":{"destination":{"name":"edge-1","namespace":"web"},"project":"default"}}`, false},
		"a spec addressed by the server of the cluster Secret": {stream.Hub, stream.Managed, nil,
			m{"destination": m{"server": testServer}},
			`{"annotations":{},"labels":{},"spec":{"destination":{"server":"` + testServer + `"}}}`, false},
		"the agent's server, with a slash": {stream.Hub, stream.Managed, nil,
			m{"destination": m{"server": testServer + "/"}},
			`{"annotations":{},"labels":{},"spec":{"destination":{"server":"` + testServer + `/"}}}`, false},
		"another agent's name":                  {stream.Hub, stream.Managed, nil, m{"destination": m{"name": "edge-2"}}, "", false},
		"a name of which the agent's is a part": {stream.Hub, stream.Managed, nil, m{"destination": m{"name": "edge-11"}}, "", false},
		"another server":                        {stream.Hub, stream.Managed, nil, m{"destination": m{"server": "https://other"}}, "", false},
		"name and server, which Argo CD refuses": {stream.Hub, stream.Managed, nil,
			m{"destination": m{"name": "edge-1", "server": testServer}}, "", false},
		"no destination":           {stream.Hub, stream.Managed, nil, m{"project": "default"}, "", false},
		"a destination of nothing": {stream.Hub, stream.Managed, nil, m{"destination": m{}}, "", false},
		"ignore-sync":              {stream.Hub, stream.Managed, m{"labels": m{object.IgnoreSyncKey: "true"}}, toAgent, "", false},
		"ignore-sync that says no": {stream.Hub, stream.Managed, m{"labels": m{object.IgnoreSyncKey: "false"}}, toAgent,
			`{"annotations":{},"labels":{},"spec":{"destination":{"name":"edge-1","namespace":"web"},"project":"default"}}`, false},
		"labels and annotations of people travel, those of controllers do not": {stream.Hub, stream.Managed,
			m{
				"labels": m{"team": "a"},
				"annotations": m{
					"note": "x", object.LastAppliedKey: "{}", object.RefreshKey: "hard", object.HydrateKey: "normal", object.TrackingKey: "id",
					object.NotifiedPrefix: "{}", object.NotifiedPrefix + "/x": "{}", object.RecordKey: "{}", object.CommandsKey: "[]",
					object.RefreshedKey: "r", object.PrincipalUIDKey: "p", object.SkipReconcileKey: "true",
				},
				"finalizers":      []any{object.CascadeFinalizer},
				"ownerReferences": []any{m{"kind": "ApplicationSet", "name": "s"}},
				"managedFields":   []any{},
			}, toAgent,
			`{"annotations":{"argocd.argoproj.io/skip-reconcile":"true","note":"x"},"labels":{"team":"a"},` +
				`"spec":{"destination":{"name":"edge-1","namespace":"web"},"project":"default"}}`, false},
		"null values of Helm travel, and markup is not escaped": {stream.Hub, stream.Managed, nil,
			m{"destination": m{"name": "edge-1"}, "source": m{"helm": m{"valuesObject": m{"a": nil, "b": "<&>", "n": json.Number("1.50")}}}},
			`{"annotations":{},"labels":{},"spec":{"destination":{"name":"edge-1"},` +
				`"source":{"helm":{"valuesObject":{"a":null,"b":"<&>","n":1.50}}}}}`, false},
		"a cascading deletion announces its finalizer": {stream.Hub, stream.Managed,
			m{"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": []any{"foreign", object.CascadeFinalizer}}, toAgent,
			`{"annotations":{},"labels":{},"leaving":["resources-finalizer.argocd.argoproj.io"],` +
				`"spec":{"destination":{"name":"edge-1","namespace":"web"},"project":"default"}}`, true},
		"a cascading deletion in the background": {stream.Hub, stream.Managed,
			m{"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": []any{object.CascadeFinalizer + "/background"}}, m{"destination": m{"name": "edge-1"}},
			`{"annotations":{},"labels":{},"leaving":["resources-finalizer.argocd.argoproj.io/background"],"spec":{"destination":{"name":"edge-1"}}}`, true},
		"a cascading deletion in the foreground": {stream.Hub, stream.Managed,
			m{"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": []any{object.CascadeFinalizer + "/foreground"}}, m{"destination": m{"name": "edge-1"}},
			`{"annotations":{},"labels":{},"leaving":["resources-finalizer.argocd.argoproj.io/foreground"],"spec":{"destination":{"name":"edge-1"}}}`, true},
		"a deletion without a cascade is an absence, whatever it waits for": {stream.Hub, stream.Managed,
			m{"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": []any{"foreign", object.PostDeleteFinalizer, object.CascadeFinalizer + "/unheard-of"}}, m{"destination": m{"name": "edge-1"}},
			"", false},
		"a cascade finalizer announces nothing before the deletion": {stream.Hub, stream.Managed,
			m{"finalizers": []any{object.CascadeFinalizer}}, m{"destination": m{"name": "edge-1"}},
			`{"annotations":{},"labels":{},"spec":{"destination":{"name":"edge-1"}}}`, false},
		"a mirror that was left over from an autonomous agent of that name": {stream.Hub, stream.Managed,
			m{"annotations": m{object.SourceUIDKey: "u", object.RecordKey: "{}"}}, toAgent, "", false},
		"an autonomous spoke sends whatever destination there is": {stream.Spoke, stream.Autonomous, nil,
			m{"destination": m{"server": object.InClusterServer}},
			`{"annotations":{},"labels":{},"spec":{"destination":{"server":"https://kubernetes.default.svc"}}}`, false},
		"an autonomous spoke announces no deletion, since the hub has no workloads": {stream.Spoke, stream.Autonomous,
			m{"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": []any{object.CascadeFinalizer}}, m{"destination": m{}},
			`{"annotations":{},"labels":{},"spec":{"destination":{}}}`, false},
		"ignore-sync on an autonomous spoke": {stream.Spoke, stream.Autonomous, m{"labels": m{object.IgnoreSyncKey: "true"}}, toAgent, "", false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			r := ruleSet(t, test.side, test.mode)
			o := objecttest.Object(t, appKey(r), test.meta, m{"spec": test.spec, "status": m{"health": m{"status": "Healthy"}}})
			got, ok := r.Content(stream.Applications, o, operations.Requests{})
			if ok != (test.want != "") {
				t.Fatalf("Content() = %s, %t", got.Data, ok)
			}
			if !ok {
				return
			}
			if diff := cmp.Diff(test.want, string(got.Data)); diff != "" {
				t.Errorf("Content() (-want +got)\n%s", diff)
			}
			if got.Leaving != test.leav {
				t.Errorf("Leaving = %t", got.Leaving)
			}
			want := stream.Version{SourceUID: "uid-1", Hash: stream.HashOf([]byte(test.want))}
			if got.Version != want || got.Revision != 7 {
				t.Errorf("version %v at %d, want %v at 7", got.Version, got.Revision, want)
			}
		})
	}
}

func TestRulesContentOfAStatus(t *testing.T) {
	managed, autonomous := ruleSet(t, stream.Spoke, stream.Managed), ruleSet(t, stream.Spoke, stream.Autonomous)
	copied := m{object.SourceUIDKey: "hub-app", object.PrincipalUIDKey: "hub-1", object.RecordKey: "{}"}
	with := func(extra m) m {
		out := m{}
		for _, from := range []m{copied, extra} {
			for key, value := range from {
				out[key] = value
			}
		}
		return out
	}
	tests := map[string]struct {
		rules  Rules
		meta   m
		status any
		want   string
		uid    string
	}{
		"a request to hydrate that was consumed is told, and one to refresh": {managed, m{"annotations": with(m{object.HydratedKey: "h-1", object.RefreshedKey: "r-1"})}, m{},
			`{"hydrated":"h-1","refreshed":"r-1","status":{}}`, "hub-app"},
		"a request to hydrate that nobody will consume is told": {managed, m{"annotations": with(m{object.HydratedKey: "h-1", object.HydrateKey: "normal"})}, m{},
			`{"hydrated":"h-1","status":{}}`, "hub-app"},
		"a command that never started is not overtaken": {managed, m{"annotations": with(m{object.CommandsKey: `["c-0","!c-1"]`})}, m{}, `{"status":{}}`, "hub-app"},
		"of a copy, under the UID of the original": {managed, m{"annotations": copied}, m{"health": m{"status": "Healthy"}},
			`{"status":{"health":{"status":"Healthy"}}}`, "hub-app"},
		"of an original": {autonomous, nil, m{"health": m{"status": "Healthy"}},
			`{"status":{"health":{"status":"Healthy"}}}`, "uid-1"},
		"of an object that is no copy":       {managed, nil, m{"health": m{"status": "Healthy"}}, "", ""},
		"of another hub's copy":              {managed, m{"annotations": with(m{object.PrincipalUIDKey: "hub-2"})}, m{}, "", ""},
		"of a copy without a status yet":     {managed, m{"annotations": copied}, nil, `{"status":{}}`, "hub-app"},
		"our condition is not the spoke's":   {managed, m{"annotations": copied}, m{"conditions": []any{m{"type": object.ErrorCondition, "message": "x"}, m{"type": "SyncError"}}}, `{"status":{"conditions":[{"type":"SyncError"}]}}`, "hub-app"},
		"our condition alone leaves no list": {managed, m{"annotations": copied}, m{"conditions": []any{m{"type": object.ErrorCondition}}}, `{"status":{}}`, "hub-app"},
		"a command that was taken and is to be seen": {managed, m{"annotations": with(m{object.CommandsKey: `["c-0","c-1"]`})}, m{"operationState": m{"operation": operation("c-1", "")}},
			`{"status":{"operationState":{"operation":{"info":[{"name":"argomesh.io/command","value":"c-1"}],"sync":{"revision":"HEAD"}}}}}`, "hub-app"},
		"a command that was taken and of which nothing is left": {managed, m{"annotations": with(m{object.CommandsKey: `["c-0","c-1"]`})}, m{"operationState": m{"phase": "Running"}},
			`{"overtaken":"c-1","status":{"operationState":{"phase":"Running"}}}`, "hub-app"},
		"a refresh that was consumed is told":   {managed, m{"annotations": with(m{object.RefreshedKey: "r-1"})}, m{}, `{"refreshed":"r-1","status":{}}`, "hub-app"},
		"a refresh that is pending is not told": {managed, m{"annotations": with(m{object.RefreshedKey: "r-1", object.RefreshKey: "normal"})}, m{}, `{"status":{}}`, "hub-app"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			rest := m{}
			if test.status != nil {
				rest["status"] = test.status
			}
			got, ok := test.rules.Content(stream.Statuses, objecttest.Object(t, appKey(test.rules), test.meta, rest), operations.Requests{})
			if diff := cmp.Diff(test.want, string(got.Data)); diff != "" || ok != (test.want != "") {
				t.Errorf("Content() (-want +got)\n%s", diff)
			}
			if got.Version.SourceUID != test.uid {
				t.Errorf("source UID %q, want %q", got.Version.SourceUID, test.uid)
			}
		})
	}
}

// TestRulesContentOfAnOperation checks which operations of a spoke the hub is told
// of.
func TestRulesContentOfAnOperation(t *testing.T) {
	r := ruleSet(t, stream.Spoke, stream.Autonomous)
	tests := map[string]struct {
		rest m
		want any // the operation
	}{
		"none":                                   {m{"status": m{}}, nil},
		"one that begins":                        {m{"operation": operation("", "")}, operation("", "")},
		"one that runs":                          {m{"operation": operation("", ""), "status": m{"operationState": state("Running", "", operation("", ""))}}, operation("", "")},
		"one that follows a command which ended": {m{"operation": operation("", ""), "status": m{"operationState": state("Succeeded", "", operation("c-1", "6"))}}, operation("", "")},
		"a command":                              {m{"operation": operation("c-1", "6")}, nil},
		"a command that was written anew while it runs": {m{"operation": operation("", ""), "status": m{"operationState": state("Running", "", operation("c-1", "6"))}}, nil},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			o := objecttest.Object(t, appKey(r), nil, test.rest)
			content, ok := r.Content(stream.Statuses, o, operations.Requests{})
			if !ok {
				t.Fatal("Content() is none")
			}
			data, err := object.Decode(content.Data)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(normal(t, test.want), data["operation"]); diff != "" {
				t.Errorf("Content() (-want +got)\n%s", diff)
			}
			// On the hub it is marked, and without that the same.
			hub := ruleSet(t, stream.Hub, stream.Autonomous)
			shown := copyOf(t, hub, objecttest.Apply(stream.Applications, "uid-1", 9, m{"spec": m{}}), nil)
			writes, refusal := hub.Plan(stream.Event{ID: "c.2", Key: stream.EntryKey{Collection: stream.Statuses, Name: "guestbook"},
				Verb: stream.Apply, Version: content.Version, Revision: 9, Data: content.Data}, shown.Key, &shown, operations.Requests{})
			if refusal != nil {
				t.Fatalf("Plan() = %s", refusalText(refusal))
			}
			if len(writes) > 0 {
				shown = stored(t, shown.Key, writes, nil)
			}
			if got := hub.Stored(stream.Statuses, shown, nil); got != content.Version {
				t.Errorf("Held() = %v on the hub, want %v: %s", got, content.Version, object.Encode(shown.Fields))
			}
			if raw, ok := hub.Content(stream.Commands, shown, operations.Requests{}); ok {
				t.Errorf("it is sent back: %s", raw.Data)
			}
		})
	}
}

func TestRulesContentOfACommand(t *testing.T) {
	r := ruleSet(t, stream.Hub, stream.Managed)
	operation := func(info ...any) m { return m{"sync": m{"revision": "HEAD"}, "info": info} }
	id, after := m{"name": object.CommandInfo, "value": "c-1"}, m{"name": object.AfterInfo, "value": "6"}
	shown := m{"operationState": m{"operation": operation(id), "phase": "Running"}}
	ending := m{"operationState": m{"operation": operation(id), "phase": "Terminating", "startedAt": now}}
	const free = `"operation":{"info":[{"name":"argomesh.io/command","value":"c-1"},{"name":"argomesh.io/after","value":"6"}],"sync":{"revision":"HEAD"}}`
	asked := func(kind, id string) operations.Requests {
		return operations.Requests{operations.Refresh: {Type: kind, ID: id}}
	}
	tests := map[string]struct {
		annotations m
		rest        m
		asked       operations.Requests
		want        string
	}{
		"nothing is asked":                     {nil, nil, operations.Requests{}, ""},
		"an operation without an id":           {nil, m{"operation": operation()}, operations.Requests{}, ""},
		"an operation that waits":              {nil, m{"operation": operation(id), "status": shown}, operations.Requests{}, ""},
		"an operation that is free, not shown": {nil, m{"operation": operation(id, after)}, operations.Requests{}, ""},
		"an operation that is free to be sent": {nil, m{"operation": operation(id, after), "status": shown}, operations.Requests{}, `{` + free + `}`},
		"one that RollingSync wrote anew": {nil, m{
			"operation": m{"sync": m{"revision": "HEAD"}}, "status": m{"operationState": m{"operation": operation(id, after), "phase": "Running"}},
		}, operations.Requests{}, `{` + free + `}`},
		"one that it wrote anew after the end": {nil, m{
			"operation": m{"sync": m{"revision": "HEAD"}},
			"status":    m{"operationState": m{"operation": operation(id, after), "phase": "Succeeded", "finishedAt": now}},
		}, operations.Requests{}, ""},
		"a refresh":                            {m{object.RefreshKey: "hard"}, nil, asked("hard", "r-1"), `{"refresh":{"id":"r-1","type":"hard"}}`},
		"a refresh that has no id yet":         {m{object.RefreshKey: "hard"}, nil, operations.Requests{}, ""},
		"a refresh whose id is of another one": {m{object.RefreshKey: "hard"}, nil, asked("normal", "r-1"), ""},
		"an id whose refresh is consumed":      {nil, nil, asked("hard", "r-1"), ""},
		"both": {m{object.RefreshKey: "normal"}, m{"operation": operation(id, after), "status": shown}, asked("normal", "r-1"),
			`{` + free + `,"refresh":{"id":"r-1","type":"normal"}}`},
		"hydrate": {m{object.HydrateKey: "normal"}, nil, operations.Requests{operations.Hydrate: {Type: "normal", ID: "h-1"}}, `{"hydrate":{"id":"h-1","type":"normal"}}`},
		"refresh and hydrate, as argocd-server asks for them": {m{object.RefreshKey: "hard", object.HydrateKey: "hard"}, nil, operations.Requests{operations.Refresh: {Type: "hard", ID: "r-1"}, operations.Hydrate: {Type: "hard", ID: "h-1"}},
			`{"hydrate":{"id":"h-1","type":"hard"},"refresh":{"id":"r-1","type":"hard"}}`},

		"the end of an operation that was sent": {nil, m{"operation": operation(id, after), "status": ending}, operations.Requests{},
			`{` + free + `,"terminate":{"command":"c-1"}}`},
		"the end of an operation that waits is the hub's alone":      {nil, m{"operation": operation(id), "status": ending}, operations.Requests{}, ""},
		"the end of an operation of the hub's that somebody removed": {nil, m{"status": ending}, operations.Requests{}, ""},
		"an operation that was born on the spoke is not sent back": {nil, m{
			"operation": operation(m{"name": object.SpokeInfo, "value": "edge-1"}),
			"status":    m{"operationState": m{"operation": operation(), "phase": "Running", "startedAt": now}},
		}, operations.Requests{}, ""},
		"the end of an operation that was born on the spoke": {nil, m{
			"operation": operation(m{"name": object.SpokeInfo, "value": "edge-1"}),
			"status":    m{"operationState": m{"operation": operation(), "phase": "Terminating", "startedAt": now}},
		}, operations.Requests{}, `{"terminate":{"startedAt":"` + now + `"}}`},
		"the end of such an operation after it left the hub": {nil, m{
			"status": m{"operationState": m{"operation": operation(), "phase": "Terminating", "startedAt": now}},
		}, operations.Requests{}, `{"terminate":{"startedAt":"` + now + `"}}`},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			rest := m{"spec": m{"destination": m{"name": "edge-1"}}}
			maps.Copy(rest, test.rest)
			got, ok := r.Content(stream.Commands, objecttest.Object(t, appKey(r), m{"annotations": test.annotations}, rest), test.asked)
			if diff := cmp.Diff(test.want, string(got.Data)); diff != "" || ok != (test.want != "") {
				t.Errorf("Content() (-want +got)\n%s", diff)
			}
		})
	}
}

// TestRulesContentOfAProject checks which projects an agent gets, and what of
// them.
func TestRulesContentOfAProject(t *testing.T) {
	all := []any{"*"}
	to := func(destinations ...any) m { return m{"destinations": destinations, "sourceNamespaces": all} }
	mine := func(namespace string) m {
		return m{"name": "in-cluster", "server": "https://kubernetes.default.svc", "namespace": namespace}
	}
	tests := map[string]struct {
		meta m
		spec m
		want any // the destinations; nil: it is not for the agent
	}{
		"a destination of the agent's name":       {nil, to(m{"name": "edge-1", "namespace": "web"}), []any{mine("web")}},
		"a glob over names":                       {nil, to(m{"name": "edge-*", "namespace": "*"}), []any{mine("*")}},
		"a glob with alternatives":                {nil, to(m{"name": "{edge-1,edge-2}", "namespace": "a"}), []any{mine("a")}},
		"a glob with a class":                     {nil, to(m{"name": "edge-[0-1]", "namespace": "a"}), []any{mine("a")}},
		"a glob of one character":                 {nil, to(m{"name": "edge-?", "namespace": "a"}), []any{mine("a")}},
		"a glob that is broken matches nothing":   {nil, to(m{"name": "edge-[", "namespace": "a"}), nil},
		"a name is the whole name":                {nil, to(m{"name": "edge", "namespace": "a"}), nil},
		"another agent's name":                    {nil, to(m{"name": "edge-2", "namespace": "a"}), nil},
		"only what is for the agent is kept":      {nil, to(m{"name": "edge-2", "namespace": "a"}, m{"name": "edge-1", "namespace": "b"}), []any{mine("b")}},
		"a namespace that is denied stays denied": {nil, to(m{"name": "*", "namespace": "*"}, m{"name": "*", "namespace": "!kube-system"}), []any{mine("*"), mine("!kube-system")}},
		"any server":                              {nil, to(m{"server": "*", "namespace": "a"}), []any{mine("a")}},
		"the server of the agent's cluster":       {nil, to(m{"server": testServer, "namespace": "a"}), []any{mine("a")}},
		"a glob over servers":                     {nil, to(m{"server": "https://proxy:9090/agents/*", "namespace": "a"}), []any{mine("a")}},
		"another server":                          {nil, to(m{"server": "https://kubernetes.default.svc", "namespace": "a"}), nil},
		"a name decides before a server":          {nil, to(m{"name": "edge-2", "server": "*", "namespace": "a"}), nil},
		"neither name nor server":                 {nil, to(m{"namespace": "a"}), nil},
		"no destinations":                         {nil, to(), nil},
		"a denial of the agent outweighs all":     {nil, to(m{"name": "edge-1", "namespace": "a"}, m{"name": "!edge-*", "namespace": "a"}), nil},
		"a denial of others admits nobody":        {nil, to(m{"name": "!edge-2", "namespace": "a"}), nil},
		"a denial of others takes nothing":        {nil, to(m{"name": "!edge-2", "namespace": "a"}, m{"name": "edge-1", "namespace": "b"}), []any{mine("b")}},
		"a denial of the agent's server goes with it, for its namespaces": {nil,
			to(m{"name": "edge-1", "namespace": "*"}, m{"server": "!" + testServer, "namespace": "kube-*"}),
			[]any{mine("*"), m{"server": "!https://kubernetes.default.svc", "namespace": "kube-*"}}},
		"a denial of the agent's server admits nobody": {nil, to(m{"server": "!" + testServer, "namespace": "kube-*"}), nil},
		"a denial of another server says nothing":      {nil, to(m{"name": "edge-1", "namespace": "a"}, m{"server": "!https://other", "namespace": "a"}), []any{mine("a")}},
		"source namespaces name the agent":             {nil, m{"destinations": []any{m{"name": "*", "namespace": "a"}}, "sourceNamespaces": []any{"team", "edge-1"}}, []any{mine("a")}},
		"source namespaces by regular expression":      {nil, m{"destinations": []any{m{"name": "*", "namespace": "a"}}, "sourceNamespaces": []any{"/^edge-[0-9]+$/"}}, []any{mine("a")}},
		"a regular expression that does not match":     {nil, m{"destinations": []any{m{"name": "*", "namespace": "a"}}, "sourceNamespaces": []any{"/^edge$/"}}, nil},
		"a regular expression that is broken":          {nil, m{"destinations": []any{m{"name": "*", "namespace": "a"}}, "sourceNamespaces": []any{"/(/"}}, nil},
		"source namespaces of others":                  {nil, m{"destinations": []any{m{"name": "*", "namespace": "a"}}, "sourceNamespaces": []any{"edge-2"}}, nil},
		"no source namespaces":                         {nil, m{"destinations": []any{m{"name": "*", "namespace": "a"}}}, nil},
		"ignore-sync":                                  {m{"labels": m{object.IgnoreSyncKey: "true"}}, to(m{"name": "*", "namespace": "a"}), nil},
		"the mirror of an autonomous agent's project":  {m{"annotations": m{object.SourceUIDKey: "u"}}, to(m{"name": "*", "namespace": "a"}), nil},
	}
	r := ruleSet(t, stream.Hub, stream.Managed)
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			test.spec["roles"] = []any{m{"name": "admins", "jwtTokens": []any{m{"iat": 1}}}}
			test.spec["sourceRepos"] = []any{"https://git/*"}
			got, ok := r.Content(stream.AppProjects, objecttest.Object(t, projectKey(r, "p"), test.meta, m{"spec": test.spec}), operations.Requests{})
			if ok != (test.want != nil) {
				t.Fatalf("Content() = %s, %t", got.Data, ok)
			}
			if !ok {
				return
			}
			want := m{"labels": m{}, "annotations": m{}, "spec": m{
				"destinations": test.want, "sourceRepos": []any{"https://git/*"}, // no roles, no source namespaces
			}}
			if diff := cmp.Diff(string(object.Encode(want)), string(got.Data)); diff != "" {
				t.Errorf("Content() (-want +got)\n%s", diff)
			}
		})
	}

	t.Run("an autonomous spoke sends its projects as they are", func(t *testing.T) {
		r := ruleSet(t, stream.Spoke, stream.Autonomous)
		got, ok := r.Content(stream.AppProjects, objecttest.Object(t, projectKey(r, "p"), nil, m{"spec": to(m{"server": "https://x"})}), operations.Requests{})
		want := `{"annotations":{},"labels":{},"spec":{"destinations":[{"server":"https://x"}],"sourceNamespaces":["*"]}}`
		if !ok || string(got.Data) != want {
			t.Errorf("Content() = %s, want %s", got.Data, want)
		}
	})
}

func TestRulesHeld(t *testing.T) {
	spoke := ruleSet(t, stream.Spoke, stream.Managed)
	e := objecttest.Apply(stream.Applications, "hub-app", 9, m{
		"labels": m{"team": "a"}, "annotations": m{"note": "x"},
		"spec": m{"project": "default", "destination": m{"name": "edge-1"}, "source": m{"path": "p"}},
	})
	leaving := objecttest.Apply(stream.Applications, "hub-app", 10, m{"leaving": []any{object.CascadeFinalizer}, "spec": m{}})
	sameReply := func(o object.Object) *Reply { r := spoke.ReplyOf(stream.Applications, e.Version, o); return &r }
	prune := func(o *object.Object) { delete(o.Child("spec"), "source") }
	left := func(o *object.Object) {
		*o = stored(t, o.Key, begun(t, spoke, leaving, *o), nil)
	}
	const same, absent, other = "the version that was written", "nothing", "some other version"
	tests := map[string]struct {
		change func(o *object.Object)
		reply  func(o object.Object) *Reply
		want   string
	}{
		"as it was written":                            {nil, nil, same},
		"as it was written, and remembered":            {nil, sameReply, same},
		"a changed spec":                               {func(o *object.Object) { o.Ensure("spec", "source")["path"] = "q" }, nil, other},
		"an added field":                               {func(o *object.Object) { o.Ensure("spec")["extra"] = true }, nil, other},
		"a changed label of the source":                {func(o *object.Object) { o.Ensure("metadata", "labels")["team"] = "b" }, nil, other},
		"a missing label of the source":                {func(o *object.Object) { delete(o.Child("metadata", "labels"), "team") }, nil, other},
		"a missing annotation of the source":           {func(o *object.Object) { delete(o.Child("metadata", "annotations"), "note") }, nil, other},
		"a label that someone else added":              {func(o *object.Object) { o.Ensure("metadata", "labels")["mine"] = "b" }, nil, same},
		"an annotation that a controller added":        {func(o *object.Object) { o.SetAnnotation(object.RefreshKey, "hard") }, nil, same},
		"a status":                                     {func(o *object.Object) { o.Ensure("status")["health"] = "x" }, nil, same},
		"a cascade finalizer":                          {func(o *object.Object) { o.SetFinalizers([]string{object.CascadeFinalizer}) }, nil, other},
		"a finalizer of Argo CD's hooks":               {func(o *object.Object) { o.SetFinalizers([]string{object.PostDeleteFinalizer}) }, nil, same},
		"fields pruned by the API server, remembered":  {prune, sameReply, same},
		"fields pruned by the API server, forgotten":   {prune, nil, other},
		"a change after the write that was remembered": {func(o *object.Object) { o.Ensure("spec")["extra"] = true }, func(o object.Object) *Reply { return &Reply{Version: e.Version, UID: o.UID()} }, other},
		"the reply for another original of that name": {nil, func(o object.Object) *Reply {
			r := spoke.ReplyOf(stream.Applications, stream.Version{SourceUID: "older", Hash: e.Version.Hash}, o)
			return &r
		}, same},
		"deleted by someone on the spoke":     {func(o *object.Object) { o.Ensure("metadata")["deletionTimestamp"] = "2026-01-01T00:00:00Z" }, sameReply, other},
		"about to leave, not yet deleted":     {left, nil, other},
		"a damaged record":                    {func(o *object.Object) { o.SetAnnotation(object.RecordKey, "}{") }, nil, other},
		"a record of something else":          {func(o *object.Object) { o.SetAnnotation(object.RecordKey, `{"hash":"nonsense","wrote":""}`) }, nil, other},
		"a release that was begun":            {func(o *object.Object) { *o = stored(t, o.Key, release(spoke, o), nil) }, nil, other},
		"a copy of another hub":               {func(o *object.Object) { o.SetAnnotation(object.PrincipalUIDKey, "hub-2") }, nil, absent},
		"an object without a source UID":      {func(o *object.Object) { delete(o.Child("metadata", "annotations"), object.SourceUIDKey) }, nil, absent},
		"a source UID that cannot be one":     {func(o *object.Object) { o.SetAnnotation(object.SourceUIDKey, strings.Repeat("x", 129)) }, nil, absent},
		"an object of argocd-agent, not ours": {func(o *object.Object) { delete(o.Child("metadata", "annotations"), object.RecordKey) }, nil, absent},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			o := copyOf(t, spoke, e, nil)
			if test.change != nil {
				test.change(&o)
			}
			var reply *Reply
			if test.reply != nil {
				reply = test.reply(o)
			}
			got := spoke.Stored(stream.Applications, o, reply)
			switch test.want {
			case same:
				if diff := cmp.Diff(e.Version, got); diff != "" {
					t.Errorf("Held() (-want +got)\n%s", diff)
				}
			case absent:
				if !got.Absent() {
					t.Errorf("Held() = %v, want nothing", got)
				}
			case other:
				if got.SourceUID != "hub-app" || got.Hash == e.Version.Hash || got.Hash == leaving.Version.Hash || got.Hash == (stream.Hash{}) {
					t.Errorf("Held() = %v, want another version of hub-app", got)
				}
			}
		})
	}

	t.Run("a deletion that was witnessed and is under way", func(t *testing.T) {
		base := copyOf(t, spoke, e, nil)
		o := stored(t, base.Key, begun(t, spoke, leaving, base), func(o object.Object) {
			o.Ensure("metadata")["deletionTimestamp"] = "2026-01-01T00:00:00Z"
		})
		if got := spoke.Stored(stream.Applications, o, nil); got != leaving.Version {
			t.Errorf("Held() = %v, want the leaving version", got)
		}
	})
	t.Run("commands are not in the object", func(t *testing.T) {
		if got := spoke.Stored(stream.Commands, copyOf(t, spoke, e, nil), nil); !got.Absent() {
			t.Errorf("Held() = %v", got)
		}
	})
	t.Run("a status on the hub is hashed as the spoke does, less our condition", func(t *testing.T) {
		hub := ruleSet(t, stream.Hub, stream.Managed)
		o := objecttest.Object(t, appKey(hub), nil, m{
			"spec":   m{"destination": m{"name": "edge-1"}},
			"status": m{"health": m{"status": "Healthy"}, "conditions": []any{m{"type": object.ErrorCondition, "message": "x"}}},
		})
		want := stream.Version{SourceUID: "uid-1", Hash: stream.HashOf([]byte(`{"status":{"health":{"status":"Healthy"}}}`))}
		if diff := cmp.Diff(want, hub.Stored(stream.Statuses, o, nil)); diff != "" {
			t.Errorf("Held() (-want +got)\n%s", diff)
		}
	})
	t.Run("what is not the agent's shows no status", func(t *testing.T) {
		hub := ruleSet(t, stream.Hub, stream.Managed)
		o := objecttest.Object(t, appKey(hub), nil, m{"spec": m{"destination": m{"name": "elsewhere"}}, "status": m{"health": m{"status": "Healthy"}}})
		if got := hub.Stored(stream.Statuses, o, nil); !got.Absent() {
			t.Errorf("Held() = %v, want nothing", got)
		}
	})
	t.Run("a status the spoke no longer sends stays to be seen", func(t *testing.T) {
		hub := ruleSet(t, stream.Hub, stream.Managed)
		o := objecttest.Object(t, appKey(hub), nil, m{"spec": m{"destination": m{"name": "edge-1"}}, "status": m{"health": m{"status": "Healthy"}}})
		if got := hub.Stored(stream.Statuses, o, nil); got.Absent() {
			t.Fatalf("Held() = %v before, want what it shows", got)
		}
		reply := hub.ReplyOf(stream.Statuses, stream.Version{}, o)
		if got := hub.Stored(stream.Statuses, o, &reply); !got.Absent() {
			t.Errorf("Held() = %v, want nothing", got)
		}
		again := o.Clone()
		again.Ensure("metadata")["uid"] = "uid-2"
		if got := hub.Stored(stream.Statuses, again, &reply); got.SourceUID != "uid-2" {
			t.Errorf("Held() = %v of the next object of that name, want what it shows", got)
		}
	})
	t.Run("a project whose agent's prefix begins with ours is another agent's", func(t *testing.T) {
		hub, longer := ruleSet(t, stream.Hub, stream.Autonomous), ruleSet(t, stream.Hub, stream.Autonomous)
		if err := longer.Agent.UnmarshalText([]byte("edge-1-b")); err != nil {
			t.Fatal(err)
		}
		theirs := copyOf(t, longer, objecttest.Apply(stream.AppProjects, "spoke-project", 3, m{"spec": m{}}), nil)
		if keys := hub.Keys(theirs.Key); len(keys) != 1 {
			t.Fatalf("Keys(%s) = %v, want the entry that the prefix tells", theirs.Key, keys)
		}
		if got := hub.Stored(stream.AppProjects, theirs, nil); !got.Absent() {
			t.Errorf("Held() = %v, want nothing: the peer would have it removed", got)
		}
		if got := longer.Stored(stream.AppProjects, theirs, nil); got.SourceUID != "spoke-project" {
			t.Errorf("Held() = %v of the agent it belongs to", got)
		}
		if writes, _ := hub.Plan(objecttest.Removal(stream.AppProjects), theirs.Key, &theirs, operations.Requests{}); len(writes) != 0 {
			t.Errorf("Plan() removes it: %+v", viewsOf(t, theirs.Key, writes))
		}
		_, refusal := hub.Plan(objecttest.Apply(stream.AppProjects, "own", 3, m{"spec": m{}}), theirs.Key, &theirs, operations.Requests{})
		if refusal == nil || refusal.Kind != stream.RefusalNotOwned {
			t.Errorf("Plan() = %s, want a refusal", refusalText(refusal))
		}
	})
}

// TestRulesFixedPoint says that what a plan made is held as the version it was
// made from, on either side and in either mode, and needs no second plan.
func TestRulesFixedPoint(t *testing.T) {
	tests := map[string]struct {
		rules Rules
		event stream.Event
	}{
		"a managed Application on the spoke": {ruleSet(t, stream.Spoke, stream.Managed), objecttest.Apply(stream.Applications, "u", 4,
			m{"labels": m{"a": "b"}, "annotations": m{object.SkipReconcileKey: "true"}, "spec": m{"destination": m{"server": testServer}}})},
		"a managed project on the spoke": {ruleSet(t, stream.Spoke, stream.Managed), objecttest.Apply(stream.AppProjects, "u", 4,
			m{"spec": m{"destinations": []any{m{"name": "in-cluster"}}}})},
		"an autonomous Application on the hub": {ruleSet(t, stream.Hub, stream.Autonomous), objecttest.Apply(stream.Applications, "u", 4,
			m{"labels": m{"a": "b"}, "annotations": m{"n": "x"}, "spec": m{"project": "p", "destination": m{"server": object.InClusterServer}}})},
		"an autonomous project on the hub": {ruleSet(t, stream.Hub, stream.Autonomous), objecttest.Apply(stream.AppProjects, "u", 4,
			m{"spec": m{"destinations": []any{m{"server": "https://x", "namespace": "a"}}, "roles": []any{m{"name": "r"}}}})},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			o := copyOf(t, test.rules, test.event, nil)
			if got := test.rules.Stored(test.event.Key.Collection, o, nil); got != test.event.Version {
				t.Errorf("Held() = %v, want %v", got, test.event.Version)
			}
			writes, refusal := test.rules.Plan(test.event, o.Key, &o, operations.Requests{})
			if diff := cmp.Diff([]view(nil), viewsOf(t, o.Key, writes), cmpopts.EquateEmpty()); diff != "" || refusal != nil {
				t.Errorf("Plan() again, refusal %q (-want +got)\n%s", refusalText(refusal), diff)
			}
		})
	}
}
