package resource_test

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/rest"

	"github.com/argomesh/argomesh/proxies/access"
	"github.com/argomesh/argomesh/proxies/resource"
	"github.com/argomesh/argomesh/proxies/resource/spoke"
)

// slowDoor is a listener on whose connections nothing is heard until it opens.
type slowDoor struct {
	net.Listener
	open     chan struct{}
	accepted atomic.Int64
	came     chan struct{} // has a value for each
}

func (d *slowDoor) Accept() (net.Conn, error) {
	conn, err := d.Listener.Accept()
	if err != nil {
		return nil, err
	}
	d.accepted.Add(1)
	d.came <- struct{}{}
	return &deafConn{conn, d.open}, nil
}

type deafConn struct {
	net.Conn
	open chan struct{}
}

func (c *deafConn) Read(p []byte) (int, error) {
	<-c.open
	return c.Conn.Read(p)
}

// arriving tells of each call that is decided about.
type arriving struct {
	resource.Policy
	arrived chan struct{}
}

func (p arriving) Decide(r access.Request) access.Decision {
	p.arrived <- struct{}{}
	return p.Policy.Decide(r)
}

// Who makes calls and gives them up, while the API server is slow to shake hands, has no
// more than some connections made at a time, and never more than calls may be under way.
func TestConnectionsOfCallsThatAreGivenUp(t *testing.T) {
	const calls, atOnce, waves = 40, 32, 6
	api := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte("{}")) // the caller says what it got
	}))
	door := &slowDoor{Listener: api.Listener, open: make(chan struct{}), came: make(chan struct{}, waves*calls+1)}
	api.Listener = door
	api.StartTLS()
	t.Cleanup(api.Close)
	arrived := make(chan struct{}, waves*calls+1)
	w := start(t, nil, settings{spoke: func(c *spoke.Config) {
		c.MaxCalls = calls
		c.Policy = arriving{c.Policy, arrived}
		c.REST = &rest.Config{Host: api.URL, TLSClientConfig: rest.TLSClientConfig{Insecure: true}}
	}})
	for range waves {
		ctx, giveUp := context.WithCancel(t.Context())
		var g errgroup.Group
		for range calls {
			r, client := w.request(ctx, http.MethodGet, "/api/v1/namespaces/web/configmaps/a", nil), w.client()
			g.Go(func() error {
				res, err := client.Do(r)
				if err != nil {
					return nil //nolint:nilerr // it was given up
				}
				return res.Body.Close() // those before it are not all gone yet
			})
			<-arrived
		}
		giveUp()
		if err := g.Wait(); err != nil {
			t.Fatal(err)
		}
	}
	for range atOnce {
		<-door.came
	}
	if n := door.accepted.Load(); n != atOnce {
		t.Errorf("%d connections were made at a time, want %d", n, atOnce)
	}
	close(door.open)
	for range 5 * calls { // meanwhile all are made that are still wanted
		if res, body := w.get("/api/v1/namespaces/web/configmaps/a"); res.Code != http.StatusOK {
			t.Fatalf("a call after that: %d %s", res.Code, body)
		}
	}
	// Each call of the last wave may have had one of these, and ended it when it ended, so
	// that there was room for another.
	if n := door.accepted.Load(); n > 2*calls+1 {
		t.Errorf("%d connections were made, want %d at most", n, 2*calls+1)
	}
}
