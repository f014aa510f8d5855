//go:build linux

package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/rest"

	"github.com/argomesh/argomesh/test/bench/report"
)

// callers call one after the other, each by itself.
type callers struct {
	count int
	// pause is between the beginnings of two calls of one of them, the first of which
	// are spread over it. Zero means that each calls as soon as it is answered.
	pause time.Duration
	// call makes the nth call of one of them, from 0.
	call func(ctx context.Context, caller, n int) error
}

// answers are how long calls took.
type answers struct {
	took []time.Duration
	// lasted is how long the calls were made, of all rounds together.
	lasted time.Duration
}

func (a *answers) add(b answers) {
	a.took = append(a.took, b.took...)
	a.lasted += b.lasted
}

func (a *answers) perSecond() float64 { return float64(len(a.took)) / a.lasted.Seconds() }

// run lets them call for as long as d. A call that fails ends all.
func (c callers) run(ctx context.Context, d time.Duration) (answers, error) {
	var (
		mu  sync.Mutex // guards all
		all answers
	)
	g, ctx := errgroup.WithContext(ctx)
	begun := time.Now()
	end := begun.Add(d)
	for caller := range c.count {
		g.Go(func() error {
			var took []time.Duration
			next := begun.Add(c.pause * time.Duration(caller) / time.Duration(c.count))
			for n := 0; ; n++ {
				if err := until(ctx, next); err != nil {
					return err
				}
				start := time.Now()
				if !start.Before(end) {
					break
				}
				if err := c.call(ctx, caller, n); err != nil {
					return fmt.Errorf("call %d of caller %d: %w", n, caller, err)
				}
				took = append(took, time.Since(start))
				next = next.Add(c.pause)
			}
			mu.Lock()
			defer mu.Unlock()
			all.took = append(all.took, took...)
			return nil
		})
	}
	err := g.Wait()
	all.lasted = time.Since(begun)
	return all, err
}

// until waits for a moment, which may have passed.
func until(ctx context.Context, moment time.Time) error {
	left := time.Until(moment)
	if left <= 0 {
		return ctx.Err()
	}
	return idle(ctx, left)
}

// compared are the answers of two ways to the same.
type compared struct{ direct, proxied answers }

// compare lets callers call both ways by turns, so that both meet the same machine.
func compare(ctx context.Context, rounds int, d time.Duration, direct, proxied callers) (c compared, err error) {
	for range rounds {
		for _, way := range []struct {
			of   callers
			into *answers
		}{{direct, &c.direct}, {proxied, &c.proxied}} {
			a, err := way.of.run(ctx, d)
			if err != nil {
				return c, err
			}
			way.into.add(a)
		}
	}
	return c, nil
}

// more is by how much a quantile of the proxied answers is beyond the direct ones', in
// milliseconds.
func (c compared) more(q float64) float64 {
	return report.Milliseconds(report.Quantile(c.proxied.took, q)) - report.Milliseconds(report.Quantile(c.direct.took, q))
}

// remark says what more is made of.
func (c compared) remark(q float64) string {
	return fmt.Sprintf("%s, direct %s; %s and %s calls", report.Quantity(report.Milliseconds(report.Quantile(c.proxied.took, q)), "ms"),
		report.Quantity(report.Milliseconds(report.Quantile(c.direct.took, q)), "ms"), report.Quantity(float64(len(c.proxied.took)), ""), report.Quantity(float64(len(c.direct.took)), ""))
}

// caller calls one API server as Argo CD does, with client-go's transport.
type caller struct {
	host   string
	client *http.Client
}

func newCaller(config *rest.Config) (caller, error) {
	config = rest.CopyConfig(config)
	config.QPS = -1
	client, err := rest.HTTPClientFor(config)
	return caller{host: config.Host, client: client}, err
}

// begin asks for a path, and returns with the header of an answer that is 200.
func (c caller) begin(ctx context.Context, path string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.host+path, http.NoBody)
	if err != nil {
		return nil, err
	}
	res, err := c.client.Do(req)
	if err != nil {
		return nil, err
	}
	if res.StatusCode != http.StatusOK {
		said, _ := io.ReadAll(io.LimitReader(res.Body, 1<<10)) // as much of it as came
		_ = res.Body.Close()                                   // no one reads on
		return nil, fmt.Errorf("GET %s: %s: %s", path, res.Status, said)
	}
	return res, nil
}

// get asks for a path and reads the whole answer.
func (c caller) get(ctx context.Context, path string) error {
	res, err := c.begin(ctx, path)
	if err != nil {
		return err
	}
	defer func() { _ = res.Body.Close() }() // it was read
	_, err = io.Copy(io.Discard, res.Body)
	return err
}

// spread returns what lets a number of callers get a path of all of those by turns,
// each beginning elsewhere.
func spread(over []caller, count int, path string) func(ctx context.Context, caller, n int) error {
	return func(ctx context.Context, caller, n int) error {
		return over[(caller*len(over)/count+n)%len(over)].get(ctx, path)
	}
}
