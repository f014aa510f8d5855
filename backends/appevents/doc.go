// Package appevents is how what a spoke's Argo CD says of its Applications waits until it
// may be told, on the spoke and on the hub: how much of it passes, and what becomes of the
// rest. It is pure: anyone who calls says what time it is, by a clock that does not jump.
//
// What client-go has for it (tools/record, its aggregator and spam filter) does not do:
// it drops what is too much, so that counts are lost, has rates of one object alone, and
// takes nothing that was said more than once.
//
//	line := appevents.NewLine(64)
//	line.Add(appevents.Event{Application: key, EventText: text, Count: 3, First: now, Last: now})
//	for !line.Due(now).After(now) { // and something waits
//		event, ok := line.Next(now)
//	}
package appevents
