package sim

import (
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/argomesh/argomesh/backends/memory"
	"github.com/argomesh/argomesh/stream"
)

// Writer is who asked a store for a change.
type Writer string

// The writers.
const (
	People     Writer = "people" // of the store's side
	Controller Writer = "controller"
	Principal  Writer = "principal"
	AgentSide  Writer = "agent"
	Nobody     Writer = "" // a restore
)

// Note is a line of a Log that is not a change of a store.
type Note string

// The notes.
const (
	// Restored: the place is what it was at a snapshot; the changes follow.
	Restored Note = "restored"
	// Rebuilt: the place's store is a new, empty one.
	Rebuilt Note = "rebuilt"
	// Accepted: a person accepted the deletions held on the place's link.
	Accepted Note = "accepted"
	// Started: a process of the place began, and knows nothing of fights before.
	Started Note = "started"
	// Upgraded: the place's Argo CD became another one, by Older.
	Upgraded Note = "upgraded"
	// Switched: Setting of the place's agent is On now, or off, on Side.
	Switched Note = "switched"
	// Departs: the place's Agent is being deleted; On says that what it has goes, too.
	Departs Note = "departs"
	// Departed: the place's Agent is gone.
	Departed Note = "departed"
	// Fights: from now on, for For or for ever, someone changes the object at Key back.
	Fights Note = "fights"
	// Refuses: from now on the place's API server refuses some writes, if On; else none.
	Refuses Note = "refuses"
	// Late: a process of the place may write from now on what it decided long before.
	Late Note = "late"
	// Knows is what an end of the place's link says at the end.
	Knows Note = "knows"
	// Settled: the last fault is over, enough time has passed, both ends said what
	// they know.
	Settled Note = "settled"
	// Rested: no one did anything since Settled, for restTime.
	Rested Note = "rested"
)

// Entry is one line of a Log: a change that a store accepted, or a note.
type Entry struct {
	At    time.Duration // since the history began
	Place string        // the hub, or the agent whose spoke it is
	Note  Note          // empty for a change

	// Of a change.
	Writer          Writer
	Agent           string // of AgentSide: which
	Op              memory.Op
	Key             stream.ResourceKey
	UID             string
	ResourceVersion string
	Gone            bool
	// Raw is the object after the change, or as it was last.
	Raw []byte

	// Of Upgraded, Switched, Refuses and Fights.
	Older   bool
	Setting string
	On      bool
	For     time.Duration

	// Of Departs: when, by the hub's API server.
	Deleted string

	// Of Knows, and of Switched and Fights.
	Side   stream.Side
	Agreed bool
	Held   int // absences that wait for a person
	// Contested says that something is named which someone changed back several times in
	// the last minutes, and who may do so again.
	Contested bool
	Suspended bool
	Parked    []string
	// Refused and Dropped are what the end names: what was not applied, and what was
	// applied in part.
	Refused map[stream.EntryKey]stream.Refusal
	Dropped map[stream.EntryKey][]string
}

func (e Entry) String() string {
	if e.Note != "" {
		return fmt.Sprintf("%s %s %s", e.At, e.Place, e.Note)
	}
	gone := ""
	if e.Gone {
		gone = " gone"
	}
	return fmt.Sprintf("%s %s %s %s %s%s %s", e.At, e.Place, e.Writer, e.Op, e.Key, gone, e.Raw)
}

// Log is what happened in a history, oldest first.
type Log struct {
	Agents  []Agent
	Entries []Entry
}

// journal writes a Log. Its methods may be called concurrently.
type journal struct {
	began time.Time
	mu    sync.Mutex // guards log
	log   Log
}

func (j *journal) add(e Entry) {
	j.mu.Lock()
	defer j.mu.Unlock()
	e.At = time.Since(j.began)
	j.log.Entries = append(j.log.Entries, e)
}

// of returns what a store of that place calls.
func (j *journal) of(place string) func(memory.Accepted) {
	return func(a memory.Accepted) {
		writer, agent := clientOf(a.Client)
		j.add(Entry{
			Place: place, Writer: writer, Agent: agent, Op: a.Op, Key: a.Object.Key,
			UID: a.Object.UID, ResourceVersion: a.Object.ResourceVersion, Gone: a.Gone, Raw: a.Object.Raw,
		})
	}
}

func (j *journal) take() Log {
	j.mu.Lock()
	defer j.mu.Unlock()
	return Log{Agents: j.log.Agents, Entries: slices.Clone(j.log.Entries)}
}

// application is an object as generic JSON, with the views of it that people, the
// stand-in controller and the checker need.
type application struct{ fields map[string]any }

func parse(raw []byte) application {
	var fields map[string]any
	if err := json.Unmarshal(raw, &fields); err != nil {
		panic("sim: a store holds what is not JSON: " + err.Error())
	}
	return application{fields}
}

func (a application) raw() []byte {
	raw, err := json.Marshal(a.fields)
	if err != nil {
		panic("sim: " + err.Error()) // it was decoded from JSON or built from it
	}
	return raw
}

// child returns a nested object; nil when there is none.
func (a application) child(path ...string) map[string]any {
	m := a.fields
	for _, name := range path {
		m, _ = m[name].(map[string]any)
	}
	return m
}

// ensure is child, made if it is missing.
func (a application) ensure(path ...string) map[string]any {
	m := a.fields
	for _, name := range path {
		next, ok := m[name].(map[string]any)
		if !ok {
			next = map[string]any{}
			m[name] = next
		}
		m = next
	}
	return m
}

func str(m map[string]any, key string) string {
	s, _ := m[key].(string)
	return s
}

func (a application) meta(key string) string { return str(a.child("metadata"), key) }
func (a application) annotation(key string) string {
	return str(a.child("metadata", "annotations"), key)
}
func (a application) deleting() bool    { return a.meta("deletionTimestamp") != "" }
func (a application) sourceUID() string { return a.annotation("argocd.argoproj.io/source-uid") }
func (a application) ignored() bool {
	return str(a.child("metadata", "labels"), "argocd-agent.argoproj-labs.io/ignore-sync") == "true"
}

const cascadeFinalizer = "resources-finalizer.argocd.argoproj.io"

func (a application) cascades() bool {
	list, _ := a.child("metadata")["finalizers"].([]any)
	return slices.Contains(list, any(cascadeFinalizer))
}

func (a application) setCascade(cascades bool) {
	list, _ := a.child("metadata")["finalizers"].([]any)
	list = slices.DeleteFunc(slices.Clone(list), func(f any) bool { return f == cascadeFinalizer })
	if cascades {
		list = append(list, cascadeFinalizer)
	}
	a.ensure("metadata")["finalizers"] = list
}

// record is what the sink noted on a copy.
func (a application) record() (rec struct {
	Revision uint64 `json:"revision"`
	History  string `json:"history"`
	Adopted  string `json:"adopted"`
}) {
	// A copy without a record, or with a broken one, has revision 0.
	_ = json.Unmarshal([]byte(a.annotation("argomesh.io/source")), &rec)
	return rec
}

func (a application) operation() map[string]any { return a.child("operation") }
func (a application) state() map[string]any     { return a.child("status", "operationState") }

// commandOf returns the id that the principal gave to an operation.
func commandOf(operation map[string]any) string {
	list, _ := operation["info"].([]any)
	for _, item := range list {
		if m, _ := item.(map[string]any); m["name"] == "argomesh.io/command" {
			return str(m, "value")
		}
	}
	return ""
}

// completed reports whether an operation has ended; one that is tried again has not.
func completed(state map[string]any) bool {
	return str(state, "finishedAt") != "" && str(state, "phase") != "Running" && str(state, "phase") != "Terminating"
}
