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
	remote  *remote
	changed notify.Signal // has a value when channels may have changed

	mu       sync.Mutex             // guards what follows
	channels map[string]*channelSub // by name
	running  bool
	// degraded says that the agent did not confirm in time, so that no one waits for it
	// until it does.
	degraded bool
	// since is what was known of the agent's absence when callers were last sent to read
	// again; zero while there is a connection, and before anything is known.
	since time.Time
}

// channelSub is a channel at the agent.
type channelSub struct {
	name  string
	parts map[*subscriptionPart]struct{}
	// asked says that this connection has sent SUBSCRIBE, and active that it was
	// confirmed.
	asked, active bool
	// ready is closed when active, or when there is no use in waiting.
	ready   chan struct{}
	isReady bool
}

// subscriptionPart is one caller's part in a channel of an agent. What changes of it is
// guarded by the subscriber's mu.
type subscriptionPart struct {
	subscriber *subscriber
	channel    *channelSub
	listener   *listener
	name       string // of the channel, for the caller
	// confirmed says that the caller knows that it is subscribed, and missed that
	// there may have been a message that it did not get.
	confirmed, missed bool
}

func newSubscriber(r *remote) *subscriber {
	return &subscriber{remote: r, changed: notify.NewSignal(), channels: map[string]*channelSub{}}
}

func (ch *channelSub) markReady() {
	if !ch.isReady {
		ch.isReady = true
		close(ch.ready)
	}
}

// join adds a caller's subscription, of which the caller knows or not.
func (s *subscriber) join(l *listener, name, channel string, confirmed bool) *subscriptionPart {
	s.mu.Lock()
	defer s.mu.Unlock()
	ch := s.channels[channel]
	if ch == nil {
		ch = &channelSub{name: channel, parts: map[*subscriptionPart]struct{}{}, ready: make(chan struct{})}
		s.channels[channel] = ch
	}
	p := &subscriptionPart{
		subscriber: s, channel: ch, listener: l, name: name, confirmed: confirmed, missed: !ch.active,
	}
	ch.parts[p] = struct{}{}
	if s.degraded {
		ch.markReady()
	}
	if !s.running {
		s.running = true
		l.spawn(s.run) // it outlasts this caller
	}
	s.changed.Notify()
	return p
}

// confirm says that the caller knows that it is subscribed.
func (p *subscriptionPart) confirm() {
	p.subscriber.mu.Lock()
	defer p.subscriber.mu.Unlock()
	p.confirmed = true
	if p.channel.active && p.missed {
		p.announceChange()
	}
}

// announceChange has the caller read again, since there may be something else now. It is
// called with the subscriber's mu locked.
func (p *subscriptionPart) announceChange() {
	p.missed = false
	p.listener.deliver(message{channel: p.name, at: time.Now()})
}

// stopWaiting lets no one wait any more until the agent confirms something.
func (s *subscriber) stopWaiting() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.degraded = true
	for _, ch := range s.channels {
		ch.markReady()
	}
}

// leave ends a caller's part in a channel.
func (p *subscriptionPart) leave() {
	p.subscriber.mu.Lock()
	defer p.subscriber.mu.Unlock()
	delete(p.channel.parts, p)
	if len(p.channel.parts) == 0 {
		p.channel.markReady() // the agent will not be asked
	}
	p.subscriber.changed.Notify()
}

// run keeps a connection for as long as there are subscriptions, and ctx is not done.
func (s *subscriber) run(ctx context.Context) {
	pause := firstPause
	for {
		began := time.Now()
		_ = s.session(ctx) // why it ended is in the agent's log and the tunnel's metrics
		s.remote.unanswered()
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

// disconnected notes that there is no connection, and reports whether to make another. Callers
// are sent to read what is known without the agent: when it goes, and once more when
// it becomes known since when it is away. When it is back they read again.
func (s *subscriber) disconnected(ctx context.Context) bool {
	since, _ := s.remote.awaySince()
	s.mu.Lock()
	defer s.mu.Unlock()
	news := !since.Equal(s.since)
	s.since = since
	s.degraded = true // until the next one is there
	for channel, ch := range s.channels {
		if len(ch.parts) == 0 || ctx.Err() != nil {
			ch.markReady()
			delete(s.channels, channel)
			continue
		}
		ch.asked, ch.active = false, false
		for p := range ch.parts {
			if p.confirmed && (news || !p.missed) {
				p.announceChange()
			}
			p.missed = true
		}
		ch.markReady()
	}
	if len(s.channels) == 0 {
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
	var receiving sync.WaitGroup
	receiving.Go(func() { ended <- s.receive(link.in) })
	defer func() {
		_ = link.conn.Close() // it ends receive
		receiving.Wait()
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
		case <-s.changed:
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
	for channel, ch := range s.channels {
		switch {
		case len(ch.parts) == 0:
			if ch.asked {
				commands = append(commands, resp.EncodeCommand("UNSUBSCRIBE", channel)...)
			}
			delete(s.channels, channel)
		case !ch.asked:
			ch.asked = true
			commands = append(commands, resp.EncodeCommand("SUBSCRIBE", channel)...)
		}
	}
	return commands, len(s.channels) > 0
}

// receive handles what the agent sends.
func (s *subscriber) receive(in resp.Wire) error {
	for {
		first, err := in.Peek(1)
		if err != nil {
			return err
		}
		s.remote.answered()
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
	ch := s.channels[channel]
	if ch != nil {
		ch.markReady()
	}
	s.mu.Unlock()
	if code == appkey.SpokeFormat {
		s.remote.warnFormat()
	}
	return nil
}

// active takes the confirmation of a subscription. Callers that may have missed
// something read again.
func (s *subscriber) active(channel string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.degraded, s.since = false, time.Time{}
	ch := s.channels[channel]
	if ch == nil || !ch.asked {
		return
	}
	ch.active = true
	for p := range ch.parts {
		if p.confirmed && p.missed {
			p.announceChange()
		}
		p.missed = false // who knows nothing yet reads afterwards
	}
	ch.markReady()
}

func (s *subscriber) deliver(channel, payload string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	ch := s.channels[channel]
	if ch == nil {
		return // just unsubscribed
	}
	for p := range ch.parts {
		if !p.confirmed {
			p.missed = true // no caller gets a message before its confirmation
			continue
		}
		p.listener.deliver(message{channel: p.name, payload: payload, at: time.Now()})
	}
}
