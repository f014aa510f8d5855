//go:build linux

package main

import (
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"

	"github.com/argomesh/argomesh/stream"
	"github.com/argomesh/argomesh/stream/streampb"
)

// answering is how many streams for live access are open to be answered on.
const answering = 8

// answers are how an agent answers what the hub asks a service of its spoke, in turn.
type answers struct {
	ways []talk
	next atomic.Uint64
}

// answerAll offers streams for live access, and answers whatever is asked there, until ctx
// is done.
func (a *agent) answerAll(ctx context.Context, services map[string]*answers) error {
	cc, err := a.dial(a.opts.principal, a.source)
	if err != nil {
		return err
	}
	defer cc.Close() //nolint:errcheck // the process ends
	var g errgroup.Group
	for range answering {
		g.Go(func() error {
			for ctx.Err() == nil {
				a.answer(ctx, cc, services)
			}
			return nil
		})
	}
	return g.Wait()
}

// shown is the Application of the agent at which people look.
func (a *agent) shown() string {
	if a.mode == stream.Managed {
		return "ordered-0"
	}
	return "small-0"
}

func (a *agent) wantedOf(ways []talk) []talk {
	var wanted []talk
	for _, w := range ways {
		if a.wanted(w.name) {
			wanted = append(wanted, w)
		}
	}
	return wanted
}

// answer offers one stream, and answers on it in the next way.
func (a *agent) answer(ctx context.Context, cc *grpc.ClientConn, services map[string]*answers) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s, err := call(ctx, cc, serveMethod, false)
	if err != nil {
		return
	}
	l := &line{ctx: ctx, stream: s, done: a.done}
	if l.prepare(a.tunnelHello(nil)) != nil {
		return
	}
	service, err := taken(s)
	if err != nil || services[service] == nil || len(services[service].ways) == 0 {
		return
	}
	of := services[service]
	way := of.ways[int(of.next.Add(1)-1)%len(of.ways)] //nolint:gosec // some thousand
	over := time.AfterFunc(hold, cancel)
	defer over.Stop()
	l.attack = way.name
	ended := a.done.begun(way.name)
	if err = l.prepare(&streampb.Chunk{Body: &streampb.Chunk_Opened{Opened: &streampb.TunnelOpened{}}}); err == nil {
		err = newPipe(l).talk(way)
	}
	ended(err)
}

// taken waits until the principal takes a stream, and returns what it wants to reach.
func taken(s grpc.ClientStream) (service string, err error) {
	for {
		c, err := hearChunk(s)
		if err != nil {
			return "", err
		}
		if open := c.GetOpen(); open != nil {
			return open.GetService(), nil
		}
	}
}

// callAnswers are answers to calls of the spoke's API server.
func callAnswers() []talk {
	const begin = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
	const chunked = begin + "Transfer-Encoding: chunked\r\n\r\n"
	const claims = "Set-Cookie: a=b\r\nLocation: https://elsewhere.example\r\nArgomesh-Refused-By: secrets\r\n"
	headers := strings.Repeat("X-A: b\r\n", 2000)
	text := strings.Repeat("a", 16<<10)
	return []talk{
		{"calls: endless body", chunked, chunk(text)},
		{"calls: endless nesting", chunked, chunk(strings.Repeat(`{"a":[`, 4<<10))},
		{"calls: bombs", begin + "Content-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n\r\n", chunk(gzipped(strings.Repeat("[", 64<<20)))},
		{"calls: endless headers", begin, headers},
		{"calls: endless trailers", chunked + "1\r\na\r\n0\r\n", headers},
		{"calls: endless line", "HTTP/1.1 200 ", text},
		{"calls: early answers", "", "HTTP/1.1 103 Early Hints\r\n" + claims + "\r\nHTTP/1.1 100 Continue\r\n" + claims + "\r\n"},
		{"calls: other protocols", "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n" + claims + "\r\n", text},
		{"calls: small pieces", chunked, strings.Repeat("1;a=b\r\na\r\n", 1600)},
		{"calls: impossible lengths", begin + "Content-Length: 9223372036854775807\r\n\r\n", text},
		{"calls: claims", "", begin + claims + "Content-Length: 8\r\n\r\nthe data"}, // again and again, unasked
		{"calls: half answers", "HTTP/1.1 2", ""},
		{"calls: silence", "", ""},
	}
}

// chunk is one of a chunked body.
func chunk(text string) string { return fmt.Sprintf("%x\r\n%s\r\n", len(text), text) }

// valueAnswers are answers to reads of what the spoke's Redis has of an Application, and to
// subscriptions there.
func valueAnswers(application string) []talk {
	channel := value("app|managed-resources|" + application + "|1.8.3")
	nodes := func(one string, n int) string {
		return value(gzipped(`{"nodes":[` + strings.Repeat(one+",", n-1) + one + `]}`))
	}
	return []talk{
		{"values: bombs", "", nodes("{}", 10<<20)},
		{"values: trees of nothing", "", nodes("{}", 2<<20)},
		{"values: trees as large as they may be", "", nodes(`{"kind":"Pod","name":"`+strings.Repeat("a", 64)+`"}`, 10000)},
		{"values: trees that say it twice", "", value(gzipped(`{"nodes":[{}],"nodes":[` + strings.Repeat(`{"kind":"<>"},`, 1<<16) + `{}]}`))},
		{"values: deep trees", "", value(gzipped(strings.Repeat(`{"nodes":[`, 1<<20)))},
		{"values: zeros", "", value(gzipped(string(make([]byte, 32<<20))))},
		{"values: endless", "$67108864\r\n", strings.Repeat("a", 16<<10)},
		{"values: endless collections", "", strings.Repeat("*2147483647\r\n", 1000)},
		{"values: endless line", "$", strings.Repeat("1", 16<<10)},
		{"values: messages", "*3\r\n$9\r\nsubscribe\r\n" + channel + ":1\r\n", strings.Repeat("*3\r\n$7\r\nmessage\r\n"+channel+"$0\r\n\r\n", 200)},
		{"values: half answers", "$100\r\na", ""},
		{"values: silence", "", ""},
	}
}

// value is a string as Redis writes it.
func value(text string) string { return fmt.Sprintf("$%d\r\n%s\r\n", len(text), text) }

func gzipped(text string) string {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, _ = w.Write([]byte(text)) // it writes to memory
	_ = w.Close()
	return b.String()
}
