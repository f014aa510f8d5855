//go:build linux

package main

import (
	"context"
	"errors"
	"io"
	"sync"

	"google.golang.org/protobuf/proto"

	"github.com/argomesh/argomesh/stream"
	"github.com/argomesh/argomesh/stream/streampb"
)

// messages is either end of a call.
type messages interface {
	SendMsg(any) error
	RecvMsg(any) error
}

// line is an open stream of the sync service, from either side.
type line struct {
	ctx    context.Context
	stream messages
	attack string
	done   *tally
	pack   func([]byte) []byte // nil for one that is not compressed
	orders *orders
	// flights are the attack's events without an answer; nil for an attack that keeps no account.
	flights *flights
}

// send says a message of ours.
func (l *line) send(m proto.Message) error {
	b, err := bytesOf(m)
	if err != nil {
		return err
	}
	return l.sendBytes(b)
}

// prepare says a message without which there is no attack, and which is none.
func (l *line) prepare(m proto.Message) error {
	b, err := bytesOf(m)
	if err != nil {
		return err
	}
	if l.pack != nil {
		b = l.pack(b)
	}
	return l.stream.SendMsg(b)
}

// sendBytes says what may be no message.
func (l *line) sendBytes(b []byte) error {
	if l.pack != nil {
		b = l.pack(b)
	}
	return l.sendPacked(b)
}

func (l *line) sendPacked(b []byte) error {
	err := l.stream.SendMsg(b)
	if err == nil {
		l.done.sent(l.attack, len(b))
	}
	return err
}

func (l *line) batch(events ...stream.Event) error {
	return l.send(stream.FrameOf(stream.Batch{Events: events}))
}

// hear waits for a message.
func (l *line) hear() (*streampb.Frame, error) {
	var b []byte
	if err := l.stream.RecvMsg(&b); err != nil {
		return nil, err
	}
	l.done.answered(l.attack)
	f, err := frameOf(b)
	if err != nil {
		return nil, err
	}
	l.orders.keep(f)
	for _, r := range f.GetApplied().GetResults() {
		kind, why := "taken", ""
		if refusal := r.GetRefusal(); refusal != nil {
			kind, why = refusal.GetKind(), refusal.GetMessage()
		}
		if l.flights != nil && !l.flights.has(r.GetEvent()) {
			kind = "earlier:" + kind
		}
		l.done.result(l.attack, kind, why)
	}
	return f, nil
}

// both calls say again and again, and tells heard what comes, until ctx is done or the
// other side ends it. What comes later is of no interest, but it is read until the stream
// ends.
func (l *line) both(say func() error, heard func(*streampb.Frame) error) error {
	said, ended := make(chan error, 1), make(chan error, 1)
	if say != nil {
		go func() {
			for l.ctx.Err() == nil {
				if err := say(); err != nil {
					said <- err
					return
				}
			}
		}()
	}
	go func() {
		for {
			f, err := l.hear()
			if err == nil && heard != nil && l.ctx.Err() == nil {
				err = heard(f)
			}
			if err != nil {
				ended <- err
				return
			}
		}
	}()
	var err error
	select {
	case <-l.ctx.Done():
		return l.ctx.Err()
	case err = <-ended:
		return err
	case err = <-said:
	}
	if !errors.Is(err, io.EOF) {
		return err
	}
	select { // the stream has ended, and why is still to come
	case <-l.ctx.Done():
	case err = <-ended:
	}
	return err
}

// mannered waits for the answer to each of n entries before it says the next of that
// entry, as our own agents do.
func (l *line) mannered(n int, next func(i, version int) stream.Event) error {
	free := make(chan int, n)
	for i := range n {
		free <- i
	}
	l.flights = newFlights()
	version := 0
	return l.both(func() error {
		select {
		case i := <-free:
			version++
			e := next(i, version)
			l.flights.add(e.ID, i)
			return l.batch(e)
		case <-l.ctx.Done():
			return l.ctx.Err()
		}
	}, func(f *streampb.Frame) error {
		for _, r := range f.GetApplied().GetResults() {
			if i, is := l.flights.take(r.GetEvent()); is {
				free <- i
			}
		}
		return nil
	})
}

// flights are the events that are not answered. It may be used concurrently.
type flights struct {
	mu sync.Mutex // guards of
	of map[string]int
}

func newFlights() *flights { return &flights{of: map[string]int{}} }

func (f *flights) add(id string, i int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.of[id] = i
}

func (f *flights) has(id string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	_, is := f.of[id]
	return is
}

func (f *flights) take(id string) (int, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	i, is := f.of[id]
	delete(f.of, id)
	return i, is
}

// orders are the Applications that the other side asked for, or has, with their versions. It may
// be used concurrently.
type orders struct {
	mu sync.Mutex // guards of
	of map[string]stream.Version
}

func newOrders() *orders { return &orders{of: map[string]stream.Version{}} }

func (o *orders) keep(f *streampb.Frame) {
	for _, e := range f.GetBatch().GetEvents() {
		if t := e.GetType(); t != "io.argomesh."+stream.Applications.String()+".apply" && t != "io.argomesh."+stream.Statuses.String()+".apply" {
			continue
		}
		a := e.GetAttributes()
		subject := a["subject"].GetCeString()
		v := stream.Version{SourceUID: a["sourceuid"].GetCeString()}
		copy(v.Hash[:], a["contenthash"].GetCeBytes())
		o.mu.Lock()
		o.of[subject[1:]] = v // those without a namespace
		o.mu.Unlock()
	}
}

func (o *orders) all() (names []string, versions []stream.Version) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for name, v := range o.of {
		names, versions = append(names, name), append(versions, v)
	}
	return names, versions
}
