package tunnel

import (
	"errors"
	"io"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/argomesh/argomesh/stream"
	"github.com/argomesh/argomesh/stream/streampb"
)

// line is one end of an in-memory wire.
type line struct {
	out, in chan *streampb.Chunk
	cut     chan struct{} // closed: nothing passes, in either direction, and no one is told
	ended   chan struct{} // closed by the end of this end's connection
}

func (l *line) Send(c *streampb.Chunk) error {
	select {
	case <-l.cut:
		return nil // it is as good as sent
	default:
	}
	select {
	case l.out <- c:
	case <-l.cut:
	case <-l.ended:
		return io.EOF
	}
	return nil
}

func (l *line) Recv() (*streampb.Chunk, error) {
	select {
	case c := <-l.in:
		return c, nil
	case <-l.ended:
		return nil, errors.New("ended")
	}
}

// ends returns both ends of a stream that is spare, and a function that cuts it.
func ends(t *testing.T) (hub, spoke *Conn, cut func()) {
	t.Helper()
	a, b, gone := make(chan *streampb.Chunk, 1), make(chan *streampb.Chunk, 1), make(chan struct{})
	end := func(side stream.Side, out, in chan *streampb.Chunk) *Conn {
		l := &line{out: out, in: in, cut: gone, ended: make(chan struct{})}
		var c *Conn
		c = NewConn(side, edge1(t), "id", Timing{Heartbeat: DefaultHeartbeat, Silence: DefaultSilence}, l, Hooks{
			Finished: func(error) { close(l.ended) },
			Asked:    func(stream.Service, int) { go func() { _, _ = c.Read(nil) }() },
		})
		go c.Receive()
		return c
	}
	return end(stream.Hub, a, b), end(stream.Spoke, b, a), func() { close(gone) }
}

// open takes a stream.
func open(t *testing.T, hub *Conn) {
	t.Helper()
	if !hub.Acquire(stream.Redis, 0, nil, nil) {
		t.Fatal("a spare stream cannot be occupied")
	}
	<-hub.Answered
	if err := hub.Outcome(); err != nil {
		t.Fatal(err)
	}
}

// A stream on which nothing happens lives, spare or taken: heartbeats come.
func TestIdleStreamsLive(t *testing.T) {
	for what, taken := range map[string]bool{"spare": false, "taken": true} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				hub, spoke, _ := ends(t)
				if taken {
					open(t, hub)
				}
				time.Sleep(24 * time.Hour) //nolint:forbidigo // virtual time
				for _, c := range []*Conn{hub, spoke} {
					if err := c.Failure(); err != nil {
						t.Errorf("after a day the stream has ended: %v", err)
					}
				}
				_ = hub.Close()
				synctest.Wait()
			})
		})
	}
}

// A peer that falls silent is found by both ends within 30 s, in whatever state the
// stream is; reads and writes that wait then fail.
func TestSilenceEndsStreams(t *testing.T) {
	for what, prepare := range map[string]func(*testing.T, *Conn){
		"spare": func(*testing.T, *Conn) {},
		"taken": open,
		"a writer waits": func(t *testing.T, hub *Conn) {
			open(t, hub)
			go func() {
				if n, err := hub.Write(make([]byte, 1<<20)); !errors.Is(err, ErrLost) {
					t.Errorf("Write() = %d, %v, want %v", n, err, ErrLost)
				}
			}()
		},
		"closed by the hub": func(t *testing.T, hub *Conn) { open(t, hub); _ = hub.CloseWrite() },
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				hub, spoke, cut := ends(t)
				prepare(t, hub)
				time.Sleep(40 * time.Second) //nolint:forbidigo // virtual time
				cut()
				began := time.Now()
				for _, c := range []*Conn{hub, spoke} {
					if c.Serving() == 0 {
						continue
					}
					if _, err := io.Copy(io.Discard, c); err != nil && !errors.Is(err, ErrLost) {
						t.Errorf("Read() = %v, want %v", err, ErrLost)
					}
				}
				if took := time.Since(began); took > 30*time.Second {
					t.Errorf("found after %s", took)
				}
				time.Sleep(30*time.Second - time.Since(began)) //nolint:forbidigo // virtual time
				synctest.Wait()
				for _, c := range []*Conn{hub, spoke} {
					if err := c.Failure(); !errors.Is(err, ErrLost) {
						t.Errorf("after 30s the stream has ended with %v, want %v", err, ErrLost)
					}
				}
			})
		})
	}
}

// A peer that never answers a close does not keep the stream.
func TestCloseDoesNotWaitForever(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &script{end: make(chan struct{})}
		over := make(chan struct{})
		c := NewConn(stream.Hub, edge1(t), "id", Timing{Heartbeat: time.Hour, Silence: DefaultSilence}, s, Hooks{Finished: func(error) { close(over) }})
		_ = c.Close()
		began := time.Now()
		<-over
		if took := time.Since(began); took != DefaultSilence {
			t.Errorf("the stream ends %s after Close(), want %s", took, DefaultSilence)
		}
		close(s.end)
	})
}

// A peer that sends single bytes, as many as the window lets it, costs little more
// than their number.
func TestSmallDataIsJoined(t *testing.T) {
	s := &script{end: make(chan struct{})}
	close(s.end)
	s.chunks = append(s.chunks, chunk{kind: kindOpened}.wire())
	for range window {
		s.chunks = append(s.chunks, &streampb.Chunk{Body: &streampb.Chunk_Data{Data: []byte("x")}})
	}
	c := NewConn(stream.Hub, edge1(t), "id", Timing{Heartbeat: time.Hour, Silence: time.Hour}, s, Hooks{Finished: func(error) {}})
	c.Acquire(stream.Redis, 0, nil, nil)
	c.Receive()
	held := 0
	for _, b := range c.ch.in.data {
		held += cap(b)
	}
	if held > 2*window || len(c.ch.in.data) > 2*window/maxData {
		t.Errorf("%d bytes in %d pieces are held for %d", held, len(c.ch.in.data), window)
	}
	got, err := io.ReadAll(c)
	if len(got) != window || !errors.Is(err, ErrLost) || slices.ContainsFunc(got, func(b byte) bool { return b != 'x' }) {
		t.Errorf("ReadAll() = %d bytes, %v", len(got), err)
	}
}

// What a peer may not send at a moment ends the stream with a violation.
func TestViolations(t *testing.T) {
	hello, open, opened := chunk{kind: kindHello, Hello: Hello{Agent: edge1(t)}}, chunk{kind: kindOpen, service: stream.Redis}, chunk{kind: kindOpened}
	data, credit, fin := chunk{kind: kindData, data: []byte("x")}, chunk{kind: kindCredit, credit: 1}, chunk{kind: kindFin}
	bye, beat := chunk{kind: kindClose}, chunk{kind: kindHeartbeat}
	full := slices.Repeat([]chunk{{kind: kindData, data: make([]byte, maxData)}}, window/maxData)
	for what, tt := range map[string]struct {
		side   stream.Side
		taken  bool
		chunks []chunk
		want   stream.Violation // empty: none
	}{
		"a second hello":                      {stream.Hub, false, []chunk{hello}, stream.ViolationOrder},
		"an agent that opens":                 {stream.Hub, false, []chunk{open}, stream.ViolationDirection},
		"an answer to nothing":                {stream.Hub, false, []chunk{opened}, stream.ViolationOrder},
		"a second answer":                     {stream.Hub, true, []chunk{opened, opened}, stream.ViolationOrder},
		"data on a spare stream":              {stream.Hub, false, []chunk{data}, stream.ViolationOrder},
		"data before the answer":              {stream.Hub, true, []chunk{data}, stream.ViolationOrder},
		"data after fin":                      {stream.Hub, true, []chunk{opened, fin, data}, stream.ViolationOrder},
		"data after close":                    {stream.Hub, true, []chunk{opened, bye, data}, stream.ViolationOrder},
		"as much data as the window":          {stream.Hub, true, append([]chunk{opened}, full...), ""},
		"a byte more than the window":         {stream.Hub, true, append(append([]chunk{opened}, full...), data), stream.ViolationLimit},
		"credit for nothing":                  {stream.Hub, true, []chunk{opened, credit}, stream.ViolationLimit},
		"credit on a spare stream":            {stream.Hub, false, []chunk{credit}, stream.ViolationOrder},
		"fin on a spare stream":               {stream.Hub, false, []chunk{fin}, stream.ViolationOrder},
		"a second fin":                        {stream.Hub, true, []chunk{opened, fin, fin}, stream.ViolationOrder},
		"a second close":                      {stream.Hub, true, []chunk{opened, bye, bye}, stream.ViolationOrder},
		"heartbeats and what nobody knows":    {stream.Hub, true, []chunk{beat, {}, opened, beat, {}, data, beat}, ""},
		"the principal's hello again":         {stream.Spoke, false, []chunk{hello}, stream.ViolationOrder},
		"a principal that answers":            {stream.Spoke, false, []chunk{open, opened}, stream.ViolationDirection},
		"a second open":                       {stream.Spoke, false, []chunk{open, open}, stream.ViolationOrder},
		"data before the spoke's answer":      {stream.Spoke, false, []chunk{open, data}, stream.ViolationOrder},
		"a close before the spoke's answer":   {stream.Spoke, false, []chunk{open, bye}, ""},
		"an open after a close":               {stream.Spoke, false, []chunk{bye, open}, stream.ViolationOrder},
		"data of a principal without opening": {stream.Spoke, false, []chunk{data}, stream.ViolationOrder},
	} {
		t.Run(what, func(t *testing.T) {
			// Our own close is not sent meanwhile: with both, the stream would be over.
			s := &script{end: make(chan struct{}), stuck: make(chan struct{})}
			defer close(s.stuck)
			close(s.end)
			for _, c := range tt.chunks {
				s.chunks = append(s.chunks, c.wire())
			}
			c := NewConn(tt.side, edge1(t), "id", Timing{Heartbeat: time.Hour, Silence: time.Hour}, s,
				Hooks{Finished: func(error) {}, Asked: func(stream.Service, int) {}})
			if tt.taken {
				c.Acquire(stream.Redis, 0, nil, nil)
			}
			c.Receive()
			if got := stream.ViolationOf(c.Failure()); got != tt.want {
				t.Errorf("the stream ends with %v, want violation %q", c.Failure(), tt.want)
			}
		})
	}
}

// TestChunksCountAtTheProcessors: the hub counts each chunk that an agent sends, before it
// is looked at.
func TestChunksCountAtTheProcessors(t *testing.T) {
	s := &script{end: make(chan struct{})}
	for range 100 {
		s.chunks = append(s.chunks, chunk{kind: kindHeartbeat}.wire())
	}
	over := make(chan struct{})
	spent := 0
	c := NewConn(stream.Hub, edge1(t), "id", Timing{Heartbeat: time.Hour, Silence: time.Hour}, s,
		Hooks{Finished: func(error) { close(over) }, Spend: func() { spent++ }})
	close(s.end)
	c.Receive()
	<-over
	if spent != 100 {
		t.Errorf("%d chunks were counted, want 100", spent)
	}
}
