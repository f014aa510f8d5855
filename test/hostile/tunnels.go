//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"google.golang.org/grpc"

	"github.com/argomesh/argomesh/stream/streampb"
)

// tunnel takes the streams for live access as soon as an agent offers them, and uses them
// in one of many ways.
func (p *principal) tunnel(s grpc.ServerStream) error {
	hello, err := hearChunk(s)
	if err != nil {
		return err
	}
	way, is := p.tunnels.take(true)
	if !is {
		<-s.Context().Done()
		return nil
	}
	ended := p.done.begun(way.name)
	ctx, cancel := context.WithTimeout(s.Context(), turn)
	defer cancel()
	l := p.line(ctx, s, way.name)
	err = l.prepare(&streampb.Chunk{Body: &streampb.Chunk_Hello{Hello: &streampb.TunnelHello{Protocol: 1, Agent: hello.GetHello().GetAgent(), Connection: word()}}})
	if err == nil {
		err = way.run(l)
	}
	ended(err)
	return nil
}

func (p *principal) tunnelAttacks() []toAgent {
	all := p.tunnelNoise()
	for _, t := range callsOfTheHub() {
		all = append(all, toAgent{name: t.name, run: func(l *line) error { return through(l, "kubernetes", false, t) }})
	}
	for _, t := range commandsOfTheHub() {
		all = append(all, toAgent{name: t.name, run: func(l *line) error { return through(l, "redis", false, t) }})
	}
	return append(all,
		toAgent{name: "tunnel: calls that nobody reads", run: func(l *line) error { return through(l, "kubernetes", true, talk{again: aList}) }},
		toAgent{name: "tunnel: commands that nobody reads", run: func(l *line) error { return through(l, "redis", true, talk{again: aTree}) }},
	)
}

// through has the agent connect a stream to a service, and then says something there.
func through(l *line, service string, deaf bool, t talk) error {
	p, err := reach(l, service)
	if err != nil {
		return err
	}
	p.deaf = deaf
	return p.talk(t)
}

// reach waits until the agent has connected a stream to a service.
func reach(l *line, service string) (*pipe, error) {
	if err := l.prepare(openOf(service)); err != nil {
		return nil, err
	}
	p := newPipe(l)
	err := p.await(func() bool { return p.opened })
	return p, err
}

func openOf(service string) *streampb.Chunk {
	return &streampb.Chunk{Body: &streampb.Chunk_Open{Open: &streampb.TunnelOpen{Service: service, Waiting: 1 << 31}}}
}

// tunnelNoise are attacks that keep to no order of chunks, or none that our own hub has.
func (p *principal) tunnelNoise() []toAgent {
	data := func(b []byte) *streampb.Chunk { return &streampb.Chunk{Body: &streampb.Chunk_Data{Data: b}} }
	return []toAgent{
		{name: "tunnel: opened and left", run: func(l *line) error {
			if err := l.send(openOf("kubernetes")); err != nil {
				return err
			}
			<-l.ctx.Done()
			return l.ctx.Err()
		}},
		{name: "tunnel: more than its window", run: func(l *line) error {
			_, err := reach(l, "kubernetes")
			for err == nil {
				err = l.send(data(make([]byte, piece)))
			}
			return err
		}},
		{name: "tunnel: data before it is opened", run: func(l *line) error {
			if err := l.prepare(openOf("kubernetes")); err != nil {
				return err
			}
			return l.read(func() error { return l.send(data(make([]byte, piece))) })
		}},
		{name: "tunnel: a service that there is not", run: func(l *line) error { return l.send(openOf(strings.Repeat("s", 4<<10))) }},
		{name: "tunnel: chunks out of order", run: func(l *line) error {
			return l.read(func() error {
				return errors.Join(l.send(&streampb.Chunk{Body: &streampb.Chunk_Credit{Credit: 1<<32 - 1}}), l.send(data(nil)))
			})
		}},
		{name: "tunnel: bombs", run: func(l *line) error {
			for _, b := range p.bombsOfWire {
				if err := l.sendPacked(b); err != nil {
					return err
				}
			}
			return nil
		}},
	}
}

// read calls say until the stream or the turn ends, and reads all that comes.
func (l *line) read(say func() error) error {
	go func() {
		var b []byte
		for l.stream.RecvMsg(&b) == nil {
			l.done.answered(l.attack)
		}
	}()
	for l.ctx.Err() == nil {
		if err := say(); err != nil {
			return err
		}
	}
	return l.ctx.Err()
}

const (
	aList = "GET /api/v1/pods HTTP/1.1\r\nHost: x\r\n\r\n"
	// aTree asks for one of many megabytes, which the spoke's Redis has.
	aTree = "*2\r\n$3\r\nGET\r\n$33\r\napp|resources-tree|large|1.8.3.gz\r\n"
)

// callsOfTheHub are calls of the spoke's API server.
func callsOfTheHub() []talk {
	const post = "POST /api/v1/namespaces/default/configmaps HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nExpect: 100-continue\r\n"
	const chunked = post + "Transfer-Encoding: chunked\r\n\r\n"
	headers := strings.Repeat("X-A: b\r\n", 2000)
	text := strings.Repeat("a", 16<<10)
	return []talk{
		{"tunnel: calls", "", strings.Repeat("GET /apis HTTP/1.1\r\nHost: x\r\n\r\n", 100)},
		{"tunnel: endless headers", "GET / HTTP/1.1\r\n", headers},
		{"tunnel: endless line", "GET /", text},
		{"tunnel: endless body", chunked, chunk(text)},
		{"tunnel: endless nesting", chunked, chunk(strings.Repeat(`{"a":[`, 4<<10))},
		{"tunnel: bodies that are bombs", post + "Content-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n\r\n", chunk(gzipped(strings.Repeat("[", 64<<20)))},
		{"tunnel: endless trailers", chunked + "1\r\na\r\n0\r\n", headers},
		{"tunnel: small pieces", chunked, strings.Repeat("1;a=b\r\na\r\n", 1600)},
		{"tunnel: impossible lengths", post + "Content-Length: 9223372036854775807\r\n\r\n", text},
		{"tunnel: other protocols", "GET /api/v1/namespaces/default/pods/x/exec?command=a&stdin=1 HTTP/1.1\r\nHost: x\r\n" +
			"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n", text},
		{"tunnel: half calls", "GET / HT", ""},
	}
}

// commandsOfTheHub are commands for the spoke's Redis.
func commandsOfTheHub() []talk {
	var channels strings.Builder
	for i := range 20000 {
		channels.WriteString("*2\r\n$9\r\nSUBSCRIBE\r\n" + value(fmt.Sprintf("app|managed-resources|a%d|1.8.3", i)))
	}
	return []talk{
		{"tunnel: commands", "", aTree},
		{"tunnel: many keys", "", "*257\r\n$4\r\nMGET\r\n" + strings.Repeat(value("app|resources-tree|large|1.8.3.gz"), 256)},
		{"tunnel: subscriptions", "", channels.String()},
		{"tunnel: endless command", "", strings.Repeat("*1000000\r\n", 3000)},
		{"tunnel: endless argument", "*2\r\n$3\r\nGET\r\n$536870912\r\n", strings.Repeat("a", 16<<10)},
		{"tunnel: half commands", "*2\r\n$3\r\nG", ""},
	}
}
