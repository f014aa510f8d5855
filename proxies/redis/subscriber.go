package redis

import (
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/argomesh/argomesh/internal/notify"
	"github.com/argomesh/argomesh/proxies/redis/appkey"
	"github.com/argomesh/argomesh/proxies/redis/resp"
)

const (
	// dialTime bounds the dial of a connection for subscriptions.
	dialTime = 5 * time.Second
	// pingEvery is how often an agent is asked whether it is there; one of which
	// nothing came for twice as long is not.
	pingEvery = 10 * time.Second
	// firstPause and longestPause bound the pause between two attempts, which grows.
	firstPause   = 50 * time.Millisecond
	longestPause = 2 * time.Second
)

// subscriber holds the subscriptions at one agent, all over one connection, which is
// made again for as long as there are any.
type subscriber struct {
	remote *remote
	wake   notify.Signal // has a value when topics may have changed

	mu      sync.Mutex // guards what follows
	topics  map[string]*channelSub
	running bool
	// degraded says that the agent did not confirm in time, so that no one waits for it
	// until it does.
	degraded bool
	// since is what was known of the agent's absence when it was told of last; zero while
	// there is a connection, and before anything is known.
	since time.Time
}

// channelSub is a channel at the agent.
type channelSub struct {
	channel string
	shares  map[*subscriptionPart]struct{}
	// asked says that this connection has sent SUBSCRIBE, and active that it was
	// confirmed.
	asked, active bool
	// ready is closed when active, or when there is no use in waiting.
	ready     chan struct{}
	isSettled bool
}

// subscriptionPart is the part of one caller's subscription in a topic. What changes of it is
// guarded by the subscriber's mu.
type subscriptionPart struct {
	at    *subscriber
	topic *channelSub
	to    *listener
	name  string // of the channel, for the caller
	// confirmed says that the caller knows that it is subscribed, and missed that
	// something may have been said of which it was not told.
	confirmed, missed bool
}

func newSubscriber(r *remote) *subscriber {
	return &subscriber{remote: r, wake: notify.NewSignal(), topics: map[string]*channelSub{}}
}

func (t *channelSub) markReady() {
	if !t.isSettled {
		t.isSettled = true
		close(t.ready)
	}
}

// join adds a caller's subscription, of which the caller knows or not.
func (s *subscriber) join(l *listener, name, channel string, confirmed bool) *subscriptionPart {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.topics[channel]
	if t == nil {
		t = &channelSub{channel: channel, shares: map[*subscriptionPart]struct{}{}, ready: make(chan struct{})}
		s.topics[channel] = t
	}
	sh := &subscriptionPart{at: s, topic: t, to: l, name: name, confirmed: confirmed, missed: !t.active}
	t.shares[sh] = struct{}{}
	if s.degraded {
		t.markReady()
	}
	if !s.running {
		s.running = true
		l.spawn(s.run) // it outlasts this caller
	}
	s.wakeUp()
	return sh
}

func (s *subscriber) wakeUp() {
	s.wake.Tell()
}

// confirm says that the caller knows that it is subscribed.
func (sh *subscriptionPart) confirm() {
	sh.at.mu.Lock()
	defer sh.at.mu.Unlock()
	sh.confirmed = true
	if sh.topic.active && sh.missed {
		sh.lookAgain()
	}
}

// lookAgain tells the caller that there may be something else to see. It is called with the
// subscriber's mu locked.
func (sh *subscriptionPart) lookAgain() {
	sh.missed = false
	sh.to.deliver(message{channel: sh.name, at: time.Now()})
}

// stopWaiting lets no one wait any more until the agent confirms something.
func (s *subscriber) stopWaiting() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.degraded = true
	for _, t := range s.topics {
		t.markReady()
	}
}

// leave ends a caller's part in a topic.
func (sh *subscriptionPart) leave() {
	sh.at.mu.Lock()
	defer sh.at.mu.Unlock()
	delete(sh.topic.shares, sh)
	if len(sh.topic.shares) == 0 {
		sh.topic.markReady() // the agent will not be asked
	}
	sh.at.wakeUp()
}

// run keeps a connection for as long as there are subscriptions, and ctx is not done.
func (s *subscriber) run(ctx context.Context) {
	pause := firstPause
	for {
		began := time.Now()
		_ = s.session(ctx) // why it ended is in the agent's log and the tunnel's metrics
		s.remote.lost()
		if !s.disconnected(ctx) {
			return
		}
		if time.Since(began) > pingEvery {
			pause = firstPause
		}
		timer := time.NewTimer(pause/2 + rand.N(pause/2+1))
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
		}
		pause = min(2*pause, longestPause)
	}
}

// disconnected says that there is no connection, and reports whether to make another. Callers
// are told to look at what is known without the agent: when it goes, and once more when
// it becomes known since when it is away. When it is back they look again.
func (s *subscriber) disconnected(ctx context.Context) bool {
	since, _ := s.remote.awaySince()
	s.mu.Lock()
	defer s.mu.Unlock()
	news := !since.Equal(s.since)
	s.since = since
	s.degraded = true // until the next one is there
	for channel, t := range s.topics {
		if len(t.shares) == 0 || ctx.Err() != nil {
			t.markReady()
			delete(s.topics, channel)
			continue
		}
		t.asked, t.active = false, false
		for sh := range t.shares {
			if sh.confirmed && (news || !sh.missed) {
				sh.lookAgain()
			}
			sh.missed = true
		}
		t.markReady()
	}
	if len(s.topics) == 0 {
		s.running, s.degraded = false, false
		return false
	}
	return true
}

// errUnneeded is that there are no subscriptions any more.
var errUnneeded = errors.New("no subscriptions")

// session is one connection.
func (s *subscriber) session(ctx context.Context) error {
	dialing, cancel := context.WithTimeout(ctx, dialTime)
	link, err := s.remote.dial(dialing)
	cancel()
	if err != nil {
		return err
	}
	link.conn.ReadTime = 2 * pingEvery
	stop := context.AfterFunc(ctx, func() { _ = link.conn.Close() }) // it interrupts both
	defer stop()
	ended := make(chan error, 1)
	var hearing sync.WaitGroup
	hearing.Go(func() { ended <- s.hear(link.in) })
	defer func() {
		_ = link.conn.Close() // it ends hear
		hearing.Wait()
	}()
	ping := time.NewTicker(pingEvery)
	defer ping.Stop()
	for {
		commands, needed := s.due()
		if !needed {
			return errUnneeded
		}
		if len(commands) > 0 {
			if _, err := link.conn.Write(commands); err != nil {
				return err
			}
		}
		select {
		case <-s.wake:
		case <-ping.C:
			if _, err := link.conn.Write(resp.EncodeCommand("PING")); err != nil {
				return err
			}
		case err := <-ended:
			return err
		}
	}
}

// due returns the commands that make the agent's subscriptions ours, and whether
// there are any.
func (s *subscriber) due() (commands []byte, needed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for channel, t := range s.topics {
		switch {
		case len(t.shares) == 0:
			if t.asked {
				commands = append(commands, resp.EncodeCommand("UNSUBSCRIBE", channel)...)
			}
			delete(s.topics, channel)
		case !t.asked:
			t.asked = true
			commands = append(commands, resp.EncodeCommand("SUBSCRIBE", channel)...)
		}
	}
	return commands, len(s.topics) > 0
}

// hear takes what the agent says.
func (s *subscriber) hear(in resp.Wire) error {
	for {
		first, err := in.Peek(1)
		if err != nil {
			return err
		}
		s.remote.hears()
		if first[0] == '-' {
			line, err := in.Line()
			if err != nil {
				return err
			}
			if err := s.refused(string(line[1:])); err != nil {
				return err
			}
			continue
		}
		if first[0] == '+' { // PONG, before there is a subscription
			if _, err := in.Line(); err != nil {
				return err
			}
			continue
		}
		n, err := in.Collection('*')
		if err != nil {
			return err
		}
		what, _, err := in.Small()
		if err != nil {
			return err
		}
		channel, _, err := in.Small()
		if err != nil {
			return err
		}
		switch {
		case what == "pong" && n == 2:
		case what == "message" && n == 3:
			payload, _, err := in.Small()
			if err != nil {
				return err
			}
			s.deliver(channel, payload)
		case (what == "subscribe" || what == "unsubscribe") && n == 3:
			if _, err := in.Number(); err != nil {
				return err
			}
			if what == "subscribe" {
				s.active(channel)
			}
		default:
			return resp.ErrProtocol
		}
	}
}

// refused takes an error: of one channel, which is never active then, or of all.
func (s *subscriber) refused(text string) error {
	code, rest, _ := strings.Cut(text, " ")
	channel := rest
	if code == appkey.SpokeFormat {
		_, channel, _ = strings.Cut(rest, " ")
	}
	if code != appkey.SpokeFormat && code != appkey.SpokeDenied {
		return errors.New("the agent's redis does not serve subscriptions")
	}
	s.mu.Lock()
	t := s.topics[channel]
	if t != nil {
		t.markReady()
	}
	s.mu.Unlock()
	if code == appkey.SpokeFormat {
		s.remote.warnFormat()
	}
	return nil
}

// active takes the confirmation of a subscription. Anyone who may have missed something
// is told to look again.
func (s *subscriber) active(channel string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.degraded, s.since = false, time.Time{}
	t := s.topics[channel]
	if t == nil || !t.asked {
		return
	}
	t.active = true
	for sh := range t.shares {
		if sh.confirmed && sh.missed {
			sh.lookAgain()
		}
		sh.missed = false // who knows nothing yet looks afterwards
	}
	t.markReady()
}

func (s *subscriber) deliver(channel, payload string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.topics[channel]
	if t == nil {
		return // just unsubscribed
	}
	for sh := range t.shares {
		if !sh.confirmed {
			sh.missed = true // no one is told anything before that it is subscribed
			continue
		}
		sh.to.deliver(message{channel: sh.name, payload: payload, at: time.Now()})
	}
}
