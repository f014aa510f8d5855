// Package audit records who did what on a spoke through the live proxies. It owns
// the form of a record, its order and what becomes of it when no one takes it; what
// is a call, and who made it, is left to the proxies.
//
//	log, err := audit.New(audit.Config{Process: replica, Writer: file, Metrics: registry, Log: logger})
//	go log.Run(ctx)
//	log.Write(ctx, audit.Record{Stage: audit.End, Agent: name, Verb: "get", ...})
//
// Records are numbered in the order in which they were written, so a record that
// was lost shows as a gap. A call is never held up by its record: what the writer
// does not take in time waits in a bounded queue, and what finds the queue full is
// dropped, counted, and missing by its number. docs/audit.md is the reader's view.
package audit
