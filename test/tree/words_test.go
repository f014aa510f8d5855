package tree

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// replaced are names that a package had once and that say nothing to who knows Kubernetes,
// Argo CD, gRPC, Envoy and SPIFFE, each with the name that says it: of a type, a function or
// a value, or, after a dot, of a method or a field of the type. Elsewhere such a word is
// free.
var replaced = map[string]map[string]string{
	"backends/budget": {
		"Common.ahead":  "earlier",
		"Common.settle": "correct",
		"Common.share":  "fairShare",
		"Common.spare":  "acquireSpare",
		"Common.take":   "acquire",
		"Objects.sweep": "forgetFull",
		"turn":          "usage",
	},
	"backends/cascades": {
		"Counter.Gate":         "Admission",
		"Counter.Note":         "Count",
		"Counter.tell":         "notify",
		"agentTally.departing": "terminating",
		"agentTally.held":      "heldReason",
		"tally.gate":           "admission",
		"tally.weigh":          "applyLimit",
	},
	"backends/departures": {
		"Departure": "Teardown",
		"Strays":    "OrphanedMirrors",
		"sweep":     "apply",
	},
	"backends/jobs": {
		"Queue.Tend":   "Update",
		"Queue.over":   "exceeded",
		"Queue.rest":   "postpone",
		"Queue.rested": "postponedUntil",
		"Queue.wake":   "budgetCheck",
		"Work.Tend":    "Update",
	},
	"backends/kube": {
		"Census":          "ConsistencyChecker",
		"Census.coming":   "queued",
		"Census.rested":   "nextAllowed",
		"Census.take":     "answer",
		"Census.turn":     "slot",
		"Witness.wake":    "pending",
		"count.place":     "namespace",
		"informer.settle": "markSynced",
		"metrics.held":    "cached",
		"tell":            "notifyAll",
	},
	"backends/mirror": {
		"Config.Heard":     "OnSpokeInfo",
		"Config.Judged":    "HistoryChanged",
		"Judgement":        "HistoryCheck",
		"Mirror.Hold":      "Pause",
		"Mirror.Tell":      "SetSpokeInfo",
		"Mirror.told":      "settings",
		"Mirror.why":       "cause",
		"Stats.Judged":     "HistoryChecked",
		"appEvents.hear":   "receive",
		"appEvents.part":   "markDisconnected",
		"appEvents.report": "observe",
		"commands.born":    "spokeOperations",
		"commands.letGo":   "expireSpokeOperations",
		"commands.note":    "assignIDs",
		"commands.vouched": "verifiedFrom",
		"core":             "shared",
		"core.look":        "nextLook",
		"core.lookAt":      "scheduleLook",
		"core.past":        "known",
		"env.told":         "settings",
		"history.announce": "publish",
		"history.doubt":    "recheck",
		"history.heard":    "receive",
		"history.judge":    "check",
		"history.judged":   "checked",
		"history.remember": "save",
		"history.spent":    "acceptUsed",
		"history.tell":     "send",
		"history.unseen":   "unconfirmed",
		"inbox.weigh":      "updateWeight",
		"loop.hear":        "readSettings",
		"loop.settle":      "finishTurn",
		"made":             "cachedContent",
		"outbox.causes":    "sentTraces",
		"outbox.effects":   "appliedTraces",
		"outbox.keep":      "put",
		"outbox.made":      "contentCache",
		"outbox.quiet":     "delayed",
		"outbox.recall":    "get",
		"outbox.speak":     "flushDelayed",
		"outbox.told":      "statusDigests",
		"outbox.unkeep":    "drop",
		"past":             "historyState",
		"projects.hold":    "applyPauses",
		"projects.stay":    "retained",
		"removals.gate":    "admission",
		"removals.settle":  "forgetHeld",
		"removals.weigh":   "updateAdmission",
		"session.tell":     "sendSpokeInfo",
		"source.situation": "linkState",
		"told":             "settings",
		"told.doubted":     "recheck",
		"told.held":        "paused",
		"told.tell":        "notify",
	},
	"backends/ownership": {
		"Rules.Departing": "Terminating",
		"Rules.Tend":      "PlanHubUpdate",
		"Situation":       "LinkState",
		"fit":             "prune",
		"letGo":           "endCopy",
		"untroubled":      "nothingToUpdate",
	},
	"backends/presence": {
		"Presence.apart": "disconnectedSince",
	},
	"backends/projects": {
		"Sweep":      "Collector",
		"Sweep.look": "release",
	},
	"backends/session": {
		"carrier":      "transport",
		"carrier.part": "sendGoodbye",
	},
	"backends/shares": {
		"Shares":       "Partition",
		"Shares.give":  "assign",
		"Shares.look":  "read",
		"Shares.take":  "unassign",
		"share":        "agentStore",
		"share.shares": "partition",
	},
	"backends/stale": {
		"Sweep":       "Marker",
		"Sweep.note":  "enqueue",
		"Sweep.take":  "next",
		"Sweep.tend":  "mark",
		"plan.rest":   "postpone",
		"plan.shares": "agents",
		"plan.take":   "next",
		"plan.turn":   "nextAgent",
		"share":       "agentLine",
	},
	"backends/untaken": {
		"Sweep":        "Reporter",
		"Sweep.Says":   "Verdicts",
		"look":         "observed",
		"pass.judge":   "plan",
		"pass.keep":    "noteReported",
		"pass.told":    "reported",
		"pass.verdict": "messageOf",
		"tell":         "patchOf",
		"write.over":   "observed",
	},
	"backends/witness": {
		"Deletion.again":  "retryAt",
		"Deletions.again": "retryAt",
		"Proofs.again":    "retryAt",
	},
	"backends/worker": {
		"Task.Situation":   "State",
		"Task.Tend":        "Update",
		"writer.overtaken": "superseded",
		"writer.tend":      "updateHub",
	},
	"cmd/agent": {
		"memory":          "historyStore",
		"memory.lose":     "markLost",
		"memory.lost":     "reset",
		"memory.remember": "save",
		"memory.settle":   "countWrite",
		"memory.tell":     "forHello",
		"teller.tell":     "notify",
		"uplink.memory":   "history",
		"uplink.term":     "session",
	},
	"cmd/agentctl/internal/identities": {
		"callee": "expectedPeer",
		"way":    "method",
	},
	"cmd/principal": {
		"core":           "hubCore",
		"front":          "proxies",
		"singletons":     "leaderTasks",
		"unclaimed.says": "verdicts",
	},
	"fleet": {
		"Continuity":       "HistoryVerifier",
		"Continuity.Judge": "Verify",
		"Owners":           "OwnersOfIDs",
		"Reading.Kept":     "Stored",
		"Registry.Note":    "UpdateStatus",
		"Registry.Owners":  "OwnerOf",
		"untaken.judge":    "verdict",
	},
	"fleet/agentwatch": {
		"Config.Note": "StatusChanged",
		"SaidBy":      "SettingsOf",
		"Says":        "Settings",
	},
	"fleet/continuity": {
		"Config.Look":      "ObserveRestores",
		"Judge":            "Verifier",
		"Judge.Judge":      "Verify",
		"Judge.claim":      "claimLink",
		"Judge.continuity": "history",
		"Judge.weigh":      "compare",
	},
	"fleet/controller": {
		"Config.Depart":  "Teardown",
		"decision.again": "requeueAfter",
		"loop.depart":    "teardown",
		"pace":           "agentState",
	},
	"fleet/division": {
		"Division.Settled": "Known",
		"Division.shares":  "partition",
	},
	"fleet/hub": {
		"Keeper":       "Store",
		"Keeper.Keep":  "Ensure",
		"Keeper.keep":  "writeKeys",
		"State.Keeper": "Store",
	},
	"fleet/links": {
		"Budgets.Keep":     "Save",
		"Config.Census":    "Consistency",
		"Links.Depart":     "Teardown",
		"Links.judged":     "historyChanged",
		"Links.look":       "observeRestores",
		"Links.retire":     "retirement",
		"Restores.note":    "record",
		"places.departing": "terminating",
		"runningLink.said": "applied",
		"runningLink.tell": "notify",
	},
	"fleet/live": {
		"LastObjects.Owners": "Resolver",
		"Owners":             "Resolver",
		"Unopened.Owners":    "Resolver",
		"Unopened.look":      "Read",
	},
	"fleet/meshpolicy": {
		"conditions.tell": "writeAll",
		"keeper":          "partReconciler",
		"loop.look":       "requeue",
		"loop.says":       "conditions",
		"says":            "ownsCondition",
		"settled":         "unchanged",
		"shelf":           "objectCache",
		"shelf.note":      "noteGone",
		"written.over":    "replaced",
		"written.unseen":  "unconfirmed",
	},
	"fleet/strangers": {
		"Keeper":       "Recorder",
		"Keeper.Note":  "Record",
		"Keeper.noted": "dirty",
	},
	"identity/workload": {
		"Source.held": "current",
		"Source.hold": "set",
		"Token.held":  "current",
		"Token.keep":  "store",
		"again":       "retryWatch",
		"holding":     "current",
	},
	"mesh": {
		"Ender": "TLSTerminator",
	},
	"mesh/spire": {
		"only": "withAction",
		"take": "countCertificate",
	},
	"mesh/spire/serverapi": {"Pusher.settle": "setError"},
	"proxies/redis": {
		"Keeper":              "LastKnownStore",
		"Owners":              "OwnerResolver",
		"fit":                 "formatStatus",
		"followers":           "subscriptionIndex",
		"keeping":             "lastKnownCache",
		"mailbox":             "outbox",
		"seal":                "fingerprint",
		"share":               "subscriptionPart",
		"subscriber.despair":  "stopWaiting",
		"subscriber.hopeless": "degraded",
		"subscriber.lost":     "disconnected",
		"topic":               "channelSub",
		"topic.settle":        "markReady",
		"topic.settled":       "ready",
	},
	"proxies/resource": {
		"Hub.grants":    "active",
		"Hub.settle":    "waitHandlers",
		"call.judge":    "noteAnsweredBy",
		"granted":       "activeCall",
		"grants":        "activeCalls",
		"place":         "refusedObjects",
		"refusals.note": "record",
		"unanswered":    "notAnswered",
	},
	"proxies/resource/replies": {
		"Keep":           "LastReplyStore",
		"Replies.held":   "counts",
		"Replies.keep":   "persist",
		"Replies.memory": "inMemory",
	},
	"proxies/resource/spoke": {
		"nobody":    "noAgent",
		"only":      "singleConnListener",
		"only.lose": "leaveOpen",
		"visit":     "spokeCall",
	},
	"stream/call": {
		"Gate":      "Admission",
		"Gate.Hold": "Open",
	},
	"stream/client": {
		"Client.report":     "logEnd",
		"connections.again": "reprove",
		"connections.take":  "handle",
		"progress.again":    "reproveAfter",
	},
	"stream/link": {
		"Doubted":          "RecheckHistory",
		"Judge":            "CheckHistory",
		"Judged":           "HistoryChecked",
		"Link.settle":      "shrinkMaps",
		"Settled":          "Answered",
		"Undoings":         "Reverts",
		"connection.heard": "lastReceived",
		"dropped.tell":     "report",
		"dropped.told":     "reported",
		"ending.told":      "known",
		"endings.keep":     "update",
		"endings.tell":     "noteKnown",
		"ends.tell":        "handle",
		"entry.held":       "stored",
		"entry.hold":       "setStored",
		"entry.land":       "clearInFlight",
		"entry.pend":       "ensurePending",
		"entry.relieve":    "resetBackoff",
		"entry.rest":       "dropPending",
		"entry.stand":      "resetClearance",
		"guard.judge":      "requestCheck",
		"guard.judged":     "historyChecked",
		"guard.judgement":  "check",
		"guard.place":      "checkEndings",
		"guard.tell":       "handle",
		"inbound.hold":     "noteStored",
		"judgeAgain":       "recheckInterval",
		"judgeFree":        "freeChecks",
		"judgeSoon":        "recheckSoon",
		"judgement":        "historyCheck",
		"judgement.note":   "record",
		"letGo":            "clearAll",
		"pending.undoings": "reverts",
		"pending.undone":   "revertedBy",
		"queue.keep":       "filter",
		"repairs.tired":    "throttled",
		"schedule.keep":    "filter",
		"sink.held":        "stored",
		"sink.settled":     "answered",
		"sink.told":        "inventoryTold",
		"source.claim":     "assumeInSync",
		"source.doubt":     "noteUnverified",
		"source.doubted":   "unverified",
		"source.keep":      "parkTooLong",
		"source.settle":    "enqueue",
		"source.settleAll": "enqueueAll",
		"source.undone":    "noteReverted",
		"source.weigh":     "updateSets",
	},
	"stream/probe": {
		"meeting": "peerRecorder",
	},
	"stream/server": {
		"Server.gate":      "admission",
		"Server.greet":     "readHello",
		"connection.place": "strangerElement",
		"farewell":         "refusalGrace",
		"listener.take":    "register",
		"renewal.take":     "renew",
		"room.patience":    "strangerTimeout",
		"signatory.keep":   "cache",
		"signatory.recall": "cached",
	},
	"stream/tunnel": {
		"Conn.heard":      "lastReceived",
		"Conn.pace":       "timing",
		"Conn.take":       "receive",
		"channel.abandon": "closeWith",
		"channel.effects": "pendingEffects",
		"channel.occupy":  "acquire",
		"channel.over":    "finished",
		"channel.retire":  "closeIdle",
		"channel.settle":  "finishIfClosed",
		"channel.take":    "receive",
		"effects.spent":   "done",
		"unsent.bye":      "closeState",
		"unsent.farewell": "closeReason",
	},
	"stream/tunnel/acceptor": {
		"carrier":    "transport",
		"offer":      "streamState",
		"spare":      "idle",
		"term":       "acceptorRun",
		"term.hear":  "handle",
		"term.offer": "runStream",
		"term.rest":  "backOff",
	},
	"stream/tunnel/dialer": {
		"Dialer.give":   "assign",
		"Dialer.note":   "record",
		"Dialer.occupy": "acquire",
		"Dialer.offer":  "addIdle",
		"pool.spare":    "idle",
		"service.gate":  "admission",
		"wait.spare":    "idle",
	},
}

// Names that were replaced do not come back.
func TestReplacedNames(t *testing.T) {
	for dir, names := range replaced {
		declared := declaredIn(t, filepath.Join(root, filepath.FromSlash(dir)))
		if len(declared) == 0 {
			t.Errorf("%s declares nothing: take it out of the table, or name the package that has its names now", dir)
		}
		for old, now := range names {
			if declared[old] {
				t.Errorf("%s declares %s, which is %s here: see the glossary of ARCHITECTURE.md", dir, old, now)
			}
		}
	}
}

// declaredIn returns what the files of a folder declare, tests apart: name, or type.name of
// methods and fields.
func declaredIn(t *testing.T, dir string) map[string]bool {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	declared := map[string]bool{}
	for _, e := range entries {
		if !strings.HasSuffix(e.Name(), ".go") || strings.HasSuffix(e.Name(), "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(dir, e.Name()), nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range file.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				declared[methodOf(d)+d.Name.Name] = true
			case *ast.GenDecl:
				for _, s := range d.Specs {
					declare(declared, s)
				}
			}
		}
	}
	return declared
}

// methodOf returns the type of a method with a dot; empty for a function.
func methodOf(d *ast.FuncDecl) string {
	if d.Recv == nil {
		return ""
	}
	of := d.Recv.List[0].Type
	if star, ok := of.(*ast.StarExpr); ok {
		of = star.X
	}
	if generic, ok := of.(*ast.IndexExpr); ok {
		of = generic.X
	}
	if name, ok := of.(*ast.Ident); ok {
		return name.Name + "."
	}
	return ""
}

func declare(declared map[string]bool, spec ast.Spec) {
	switch s := spec.(type) {
	case *ast.ValueSpec:
		for _, n := range s.Names {
			declared[n.Name] = true
		}
	case *ast.TypeSpec:
		declared[s.Name.Name] = true
		var members *ast.FieldList
		switch of := s.Type.(type) {
		case *ast.StructType:
			members = of.Fields
		case *ast.InterfaceType:
			members = of.Methods
		}
		if members == nil {
			return
		}
		for _, m := range members.List {
			for _, n := range m.Names {
				declared[s.Name.Name+"."+n.Name] = true
			}
		}
	}
}

// replacedWords are words of a language of our own, which readers stumble on where a noun says
// it: which agent, which writer, which client.
var replacedWords = regexp.MustCompile(`\b([Nn]obody|[Ss]omebody|[Aa]nybody|[Ee]verybody|[Ww]hoever|[Aa]new)\b`)

// TestReplacedWords holds code, settings and documents to the words that people of the field
// use. Tests and test programs name their cases as they like.
func TestReplacedWords(t *testing.T) {
	for _, name := range files(t) {
		switch path.Ext(name) {
		case ".go", ".md", ".proto", ".yaml":
		default:
			continue
		}
		if strings.HasSuffix(name, "_test.go") || strings.HasPrefix(name, "test/") {
			continue
		}
		for i, line := range strings.Split(string(read(t, name)), "\n") {
			if word := replacedWords.FindString(line); word != "" {
				t.Errorf("%s:%d: %q: name who or what it is, or say no one, someone, anyone, everyone, again", name, i+1, word)
			}
		}
	}
}
