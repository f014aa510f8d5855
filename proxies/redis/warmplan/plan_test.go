package warmplan

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/argomesh/argomesh/identity"
	"github.com/argomesh/argomesh/proxies/redis/appkey"
	"github.com/argomesh/argomesh/test/kit"
)

func appOf(name identity.AgentName, n int) appkey.Instance {
	return appkey.Instance{Namespace: name.String(), Name: fmt.Sprint("app-", n)}
}

// planEnv runs a plan with a clock of its own, on which each read takes some time.
type planEnv struct {
	t     *testing.T
	plan  *Plan
	now   time.Time
	takes time.Duration
	// busy are agents whose calls others need.
	busy map[string]bool
	// says is what becomes of a read.
	says  func(Job) (Result, int)
	under []warmUnder
	reads []warmSeen
}

type warmUnder struct {
	job Job
	end time.Time
}

// warmSeen is a read as it began.
type warmSeen struct {
	agent, key string
	at         time.Time
}

func newPlanEnv(t *testing.T, most int) *planEnv {
	t.Helper()
	return &planEnv{
		t: t, plan: New(most), now: time.Date(2026, 11, 25, 12, 0, 0, 0, time.UTC), takes: time.Millisecond, busy: map[string]bool{},
		says: func(Job) (Result, int) { return Kept, 1 },
	}
}

// has connects an agent with Applications from 0 on.
func (w *planEnv) has(agent, session string, apps int) {
	w.t.Helper()
	name := kit.Agent(w.t, agent)
	if !w.plan.Connect(name, session) {
		w.t.Fatalf("%s is connected already", agent)
	}
	for n := range apps {
		if !w.plan.Observe(name, appOf(name, n), 1) {
			w.t.Fatal("there is no room")
		}
	}
}

func (w *planEnv) free(name identity.AgentName) bool { return !w.busy[name.String()] }

// run runs for some time, and returns what was read.
func (w *planEnv) run(d time.Duration) []warmSeen {
	w.t.Helper()
	end, began := w.now.Add(d), len(w.reads)
	for {
		job, ok, retryAt := w.plan.Next(w.now, w.free)
		if ok {
			key := job.Instance.Name + " " + job.Family
			if job.Shard > 0 {
				key += fmt.Sprint(" ", job.Shard)
			}
			w.reads = append(w.reads, warmSeen{job.Agent.Name.String(), key, w.now})
			w.under = append(w.under, warmUnder{job, w.now.Add(w.takes)})
			continue
		}
		at := end
		if !retryAt.IsZero() && retryAt.Before(at) {
			at = retryAt
		}
		if !at.After(w.now) && !at.Equal(end) {
			w.t.Fatal("it is to be asked again at once")
		}
		if len(w.under) > 0 && !w.under[0].end.After(at) {
			u := w.under[0]
			w.under, w.now = w.under[1:], u.end
			result, shards := w.says(u.job)
			w.plan.Done(u.job, result, shards, w.now)
			continue
		}
		if w.now = at; at.Equal(end) {
			return w.reads[began:]
		}
	}
}

// keys are what was read, in order.
func keysRead(reads []warmSeen) (keys []string) {
	for _, r := range reads {
		keys = append(keys, r.key)
	}
	return keys
}

// most is how many reads there are at most in a second.
func mostInASecond(reads []warmSeen) (most int) {
	for i, first := range reads {
		n := 0
		for _, r := range reads[i:] {
			if r.at.Sub(first.at) >= time.Second {
				break
			}
			n++
		}
		most = max(most, n)
	}
	return most
}

// No second has more than 5 reads of an agent and 100 of all, and what there is goes round.
func TestWarmRates(t *testing.T) {
	w := newPlanEnv(t, MaxWarm)
	const agents, apps = 40, 20
	for n := range agents {
		w.has(fmt.Sprint("edge-", n), "1", apps)
	}
	if w.plan.Waiting != agents*apps {
		t.Errorf("%d wait", w.plan.Waiting)
	}
	reads := w.run(4 * time.Second)
	if got := mostInASecond(reads); got > 100 || len(reads) != 400 {
		t.Errorf("%d reads, at most %d in a second", len(reads), got)
	}
	of := map[string][]warmSeen{}
	for _, r := range reads {
		of[r.agent] = append(of[r.agent], r)
	}
	for agent, mine := range of {
		if mostInASecond(mine) > 5 || len(mine) != len(reads)/agents {
			t.Errorf("agent %s: %d reads, at most %d in a second", agent, len(mine), mostInASecond(mine))
		}
	}
	if reads = w.run(time.Hour); len(w.reads) != agents*apps*2 || w.plan.Waiting != 0 {
		t.Errorf("%d reads in all, %d wait", len(w.reads), w.plan.Waiting)
	}
	slices.SortFunc(w.reads, func(a, b warmSeen) int { return a.at.Compare(b.at) })
	if got := mostInASecond(reads); got > 100 {
		t.Errorf("at most %d in a second", got)
	}
}

// An agent that connects again and again while it does not answer has one read at a time, and
// the others theirs.
func TestWarmReadsOneOfAnAgent(t *testing.T) {
	w := newPlanEnv(t, MaxWarm)
	w.takes = 30 * time.Second
	for n := range 10 {
		w.has("edge-1", fmt.Sprint(n), 1)
		w.run(time.Second)
		if n%2 == 0 { // it is seen to be away, too
			w.plan.Disconnect(kit.Agent(t, "edge-1"))
			w.run(time.Second)
		}
	}
	if len(w.under) != 1 {
		t.Errorf("%d reads of one agent are under way", len(w.under))
	}
	if reads := w.run(time.Minute); len(reads) == 0 {
		t.Error("nothing is read any more")
	}
}

// An agent with much to read does not keep one with little waiting, and alone it has 5 reads
// a second.
func TestWarmIsFair(t *testing.T) {
	w := newPlanEnv(t, MaxWarm)
	w.has("large", "1", 1000)
	if reads := w.run(10 * time.Second); len(reads) != 50 || mostInASecond(reads) != 5 {
		t.Errorf("%d reads of one agent, at most %d in a second", len(reads), mostInASecond(reads))
	}
	w.has("small", "1", 1)
	reads := w.run(time.Second)
	if small := slices.IndexFunc(reads, func(r warmSeen) bool { return r.agent == "small" }); small < 0 || small > 1 {
		t.Errorf("the reads are %v", reads)
	}
	// One that takes its time has one read under way, and keeps no one.
	w.takes = 10 * time.Second
	w.has("other", "1", 5)
	if reads := w.run(time.Second); len(reads) != 2 {
		t.Errorf("%d reads, each of which takes long: %v", len(reads), reads)
	}
}

// The keys of an Application are its tree, its managed resources, and what the tree says of
// further parts, within a limit.
func TestWarmKeys(t *testing.T) {
	w := newPlanEnv(t, MaxWarm)
	w.says = func(job Job) (Result, int) {
		if job.Family == appkey.ResourcesTree && job.Shard == 0 {
			return Kept, 3
		}
		return Kept, 0
	}
	w.has("edge-1", "1", 1)
	want := []string{"app-0 resources-tree", "app-0 managed-resources", "app-0 resources-tree 1", "app-0 resources-tree 2"}
	if diff := cmp.Diff(want, keysRead(w.run(time.Minute))); diff != "" {
		t.Error(diff)
	}
	w.says = func(Job) (Result, int) { return Kept, 1 << 30 }
	w.has("edge-2", "1", 1)
	if reads := w.run(time.Hour); len(reads) != maxShards+1 {
		t.Errorf("%d reads at the limit", len(reads))
	}
	w.says = func(Job) (Result, int) { return Long, 0 }
	w.has("edge-3", "1", 1)
	if diff := cmp.Diff(want[:2], keysRead(w.run(time.Hour))); diff != "" {
		t.Error("of what is too long:", diff)
	}
}

// An Application is read once more when its resources have changed, or its agent has connected
// again, and not otherwise.
func TestWarmReadsAgain(t *testing.T) {
	w := newPlanEnv(t, MaxWarm)
	edge := kit.Agent(t, "edge-1")
	w.has("edge-1", "1", 2)
	reads := func(what string, want int) {
		t.Helper()
		if got := w.run(time.Hour); len(got) != want {
			t.Errorf("%s: %d reads: %v", what, len(got), got)
		}
	}
	reads("at first", 4)
	if w.plan.Connect(edge, "1") {
		t.Error("the same connection is another one")
	}
	w.plan.Observe(edge, appOf(edge, 0), 1)
	reads("unchanged", 0)
	for content := range 5 {
		w.plan.Observe(edge, appOf(edge, 0), 10+uint64(content))
	}
	reads("changed several times", 2)
	w.plan.Observe(edge, appOf(edge, 7), 1)
	reads("a new one", 2)
	// It changes while it is read.
	w.plan.Observe(edge, appOf(edge, 0), 20)
	w.run(0)
	w.plan.Observe(edge, appOf(edge, 0), 21)
	reads("changed meanwhile", 3)
	w.plan.Forget(appOf(edge, 7))
	w.plan.Forget(appOf(edge, 7))
	w.has("edge-1", "2", 2)
	reads("connected again", 4)
	w.plan.Disconnect(edge)
	w.plan.Observe(edge, appOf(edge, 0), 30)
	if reads("away", 0); len(w.plan.apps) != 0 || w.plan.Waiting != 0 {
		t.Errorf("%d Applications are remembered, %d wait", len(w.plan.apps), w.plan.Waiting)
	}
	// Another agent has it.
	w.has("edge-1", "3", 1)
	w.has("edge-2", "1", 0)
	w.plan.Observe(kit.Agent(t, "edge-2"), appOf(edge, 0), 1)
	if got := w.run(time.Hour); len(got) != 2 || got[0].agent != "edge-2" {
		t.Errorf("of one that is another agent's: %v", got)
	}
}

// An agent that refuses is left alone until it connects again.
func TestWarmRefusal(t *testing.T) {
	for _, result := range []Result{Format, Refused} {
		w := newPlanEnv(t, MaxWarm)
		edge := kit.Agent(t, "edge-1")
		w.says = func(job Job) (Result, int) {
			if job.Agent.Name == edge {
				return result, 0
			}
			return Kept, 1
		}
		w.has("edge-1", "1", 10)
		w.has("edge-2", "1", 1)
		reads := w.run(time.Hour)
		w.plan.Observe(edge, appOf(edge, 3), 9)
		if reads = append(reads, w.run(time.Hour)...); len(reads) != 3 || w.plan.Waiting != 0 || len(w.plan.apps) != 1 {
			t.Errorf("%s: %v, %d wait, %d are remembered", result, reads, w.plan.Waiting, len(w.plan.apps))
		}
		w.says = func(Job) (Result, int) { return Kept, 1 }
		w.has("edge-1", "2", 10)
		if reads := w.run(time.Hour); len(reads) != 20 {
			t.Errorf("%s: %d reads after it has connected again", result, len(reads))
		}
	}
}

// What the spoke has not yet is looked for some more times, and what cannot be read until it
// can; neither keeps others waiting.
func TestWarmTriesAgain(t *testing.T) {
	w := newPlanEnv(t, MaxWarm)
	const late = "app-0"
	w.says = func(job Job) (Result, int) {
		if job.Instance.Name == late {
			return Missing, 0
		}
		return Kept, 1
	}
	w.has("edge-1", "1", 2)
	if diff := cmp.Diff([]string{"app-0 resources-tree", "app-1 resources-tree", "app-1 managed-resources"}, keysRead(w.run(warmRetry))); diff != "" {
		t.Error(diff)
	}
	if reads := w.run(time.Hour); len(reads) != warmTries-1 || w.plan.Waiting != 0 {
		t.Errorf("what is missing is looked for %d times more, %d wait", len(reads), w.plan.Waiting)
	}
	edge := kit.Agent(t, "edge-1")
	w.plan.Observe(edge, appOf(edge, 0), 2)
	w.run(warmRetry / 2)
	w.says = func(Job) (Result, int) { return Kept, 1 }
	if reads := w.run(time.Hour); len(reads) != 2 || w.plan.Waiting != 0 {
		t.Errorf("when it is there: %v", reads)
	}

	// Its Redis is away.
	w.says = func(Job) (Result, int) { return Failed, 0 }
	w.has("edge-2", "1", 3)
	if reads := w.run(time.Hour); len(reads) < 60 || len(reads) > 80 {
		t.Errorf("%d reads in an hour of one that does not answer", len(reads))
	}
	w.says = func(Job) (Result, int) { return Kept, 1 }
	if reads := w.run(3 * time.Minute); len(reads) != 6 || w.plan.Waiting != 0 {
		t.Errorf("after it is back: %v", reads)
	}
}

// What is missing again and again, and what waits, take turns.
func TestWarmLaterAndWaitingTakeTurns(t *testing.T) {
	w := newPlanEnv(t, MaxWarm)
	w.says = func(Job) (Result, int) { return Missing, 0 }
	w.has("edge-1", "1", 400) // more than has its turn in warmRetry
	seen := map[string]bool{}
	for _, r := range w.run(3 * warmRetry) {
		seen[r.key] = true
	}
	if len(seen) != 400 {
		t.Errorf("of 400 %d were looked for", len(seen))
	}
}

// While others need an agent's calls, nothing is read of it, and of others it is.
func TestWarmLeavesRoom(t *testing.T) {
	w := newPlanEnv(t, MaxWarm)
	w.busy["edge-1"] = true
	w.has("edge-1", "1", 1)
	w.has("edge-2", "1", 1)
	reads := w.run(time.Minute)
	if len(reads) != 2 || reads[0].agent != "edge-2" {
		t.Errorf("%v", reads)
	}
	w.busy["edge-1"] = false
	if reads := w.run(time.Minute); len(reads) != 2 || w.plan.Waiting != 0 {
		t.Errorf("when there is room: %v", reads)
	}
}

// So many Applications are remembered, and no more.
func TestWarmHoldsSoMany(t *testing.T) {
	w := newPlanEnv(t, 3)
	edge := kit.Agent(t, "edge-1")
	w.has("edge-1", "1", 3)
	if w.plan.Observe(edge, appOf(edge, 3), 1) || len(w.plan.apps) != 3 {
		t.Errorf("%d are remembered", len(w.plan.apps))
	}
	if !w.plan.Observe(edge, appOf(edge, 2), 2) {
		t.Error("one that is remembered has no room")
	}
	w.plan.Forget(appOf(edge, 0))
	if !w.plan.Observe(edge, appOf(edge, 3), 1) {
		t.Error("what is forgotten has its room still")
	}
	if reads := w.run(time.Hour); len(reads) != 6 {
		t.Errorf("%v", reads)
	}
	// What was begun of one that is forgotten is of no account.
	w.plan.Observe(edge, appOf(edge, 1), 5)
	w.run(0)
	w.plan.Forget(appOf(edge, 1))
	if reads := w.run(time.Hour); len(reads) != 0 || w.plan.Waiting != 0 || len(w.plan.apps) != 2 {
		t.Errorf("%v, %d wait, %d are remembered", reads, w.plan.Waiting, len(w.plan.apps))
	}
}

// What an Application says of its resources has a sum that other fields do not move.
func TestContentOf(t *testing.T) {
	const application = `{"metadata":{"resourceVersion":"1"},"status":{"reconciledAt":"a","resources":[{"kind":"Pod"}],"health":{"status":"Healthy"},"summary":{"images":["x"]}}}`
	is := ContentOf([]byte(application))
	for name, tt := range map[string]struct {
		text string
		same bool
	}{
		"reconciled again":   {`{"metadata":{"resourceVersion":"2"},"status":{"reconciledAt":"b","resources":[{"kind":"Pod"}],"health":{"status":"Healthy"},"summary":{"images":["x"]},"sync":{}}}`, true},
		"another resource":   {`{"status":{"resources":[{"kind":"Job"}],"health":{"status":"Healthy"},"summary":{"images":["x"]}}}`, false},
		"another health":     {`{"status":{"resources":[{"kind":"Pod"}],"health":{"status":"Degraded"},"summary":{"images":["x"]}}}`, false},
		"another summary":    {`{"status":{"resources":[{"kind":"Pod"}],"health":{"status":"Healthy"},"summary":{"images":["y"]}}}`, false},
		"no health":          {`{"status":{"resources":[{"kind":"Pod"}],"summary":{"status":"Healthy"}}}`, false},
		"no status":          {`{}`, false},
		"not an Application": {`{`, false},
	} {
		if same := ContentOf([]byte(tt.text)) == is; same != tt.same {
			t.Errorf("%s: the same is %t", name, same)
		}
	}
}

// In how many parts a tree is, is what its own field says, and no other.
func TestShardsOf(t *testing.T) {
	for text, want := range map[string]int{
		`{"nodes":[{"kind":"Pod"}],"shardsCount":3}`:      3,
		`{"shardsCount" : 12 ,"nodes":[]}`:                12,
		`{"nodes":[{"shardsCount":7}]}`:                   1,
		`{"x":"shardsCount","y":{"shardsCount":7},"z":1}`: 1,
		`{"x":"\"shardsCount\":9","shardsCount":2}`:       2,
		`{"x":"\\","shardsCount":2}`:                      2,
		`{"shardsCountOf":5}`:                             1,
		`{"shardsCount":99999999999999999999999}`:         maxShards,
		`{"shardsCount":-3}`:                              3,
		`{"shardsCount":0}`:                               1,
		`{"shardsCount":"4"}`:                             1,
		`{}`:                                              1,
		``:                                                1,
		`{"shardsCount":`:                                 1,
		`[{"shardsCount":4}]`:                             1,
		`{"a":[1,[2,{"b":"]}"}]],"shardsCount":6,"nodes":[{"k":"}"}]}`: 6,
	} {
		if got := ShardsOf([]byte(text), false); got != want {
			t.Errorf("%s: %d, want %d", text, got, want)
		}
		if got := ShardsOf(packed(t, []byte(text)), true); got != want {
			t.Errorf("%s, compressed: %d, want %d", text, got, want)
		}
	}
	if got := ShardsOf([]byte("no gzip"), true); got != 1 {
		t.Errorf("of what is not compressed: %d", got)
	}
}

// packed compresses as Argo CD does.
func packed(t testing.TB, text []byte) []byte {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	if _, err := w.Write(text); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// An agent that makes and deletes Applications while its reads fail leaves no entries behind.
func TestTurnsOfTheGone(t *testing.T) {
	w := newPlanEnv(t, MaxWarm)
	w.says = func(Job) (Result, int) { return Failed, 0 }
	w.has("edge-1", "s", 100)
	name := kit.Agent(t, "edge-1")
	for i := range 10000 {
		short := appkey.Instance{Namespace: name.String(), Name: fmt.Sprint("short-", i)}
		w.plan.Observe(name, short, 1)
		w.plan.Forget(short)
		if i%100 == 0 {
			w.run(time.Second)
		}
		if a := w.plan.Agents[name]; len(a.waiting)+len(a.later) > 2*(2*len(a.apps)+fewEntries)+2 {
			t.Fatalf("after %d that came and went there are %d and %d entries of %d Applications", i, len(a.waiting), len(a.later), len(a.apps))
		}
	}
	if a := w.plan.Agents[name]; len(w.plan.apps) != 100 || len(a.apps) != 100 {
		t.Errorf("%d Applications are known, %d of the agent", len(w.plan.apps), len(a.apps))
	}
}
