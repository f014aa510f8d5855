//go:build linux

package harness

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/argomesh/argomesh/test/loopback"
)

func TestParseSocketTable(t *testing.T) {
	const table = `  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 1001 1 0 100 0 0 10 0
   1: 00000000:0016 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 1002 1 0 100 0 0 10 0
   2: 0100007F:1F90 0100007F:C000 01 00000000:00000000 00:00000000 00000000     0        0 1003 1 0 100 0 0 10 0
   3: 00000000000000000000000001000000:01BB 00000000000000000000000000000000:0000 0A 00000000:00000000 00:00000000 00000000 0 0 1004 1 0
   4: 0000000000000000FFFF00000100007F:01BB 00000000000000000000000000000000:0000 0A 00000000:00000000 00:00000000 00000000 0 0 1005 1 0
   5: 0100007F:0035 00000000:0000 07 00000000:00000000 00:00000000 00000000     0        0 1006 2 0 0
`
	for network, want := range map[string]map[string]socket{
		"tcp": {
			"1001": {"tcp", netip.MustParseAddrPort("127.0.0.1:8080")},
			"1002": {"tcp", netip.MustParseAddrPort("0.0.0.0:22")},
			"1004": {"tcp", netip.MustParseAddrPort("[::1]:443")},
			"1005": {"tcp", netip.MustParseAddrPort("[::ffff:127.0.0.1]:443")},
		},
		"udp": {
			"1006": {"udp", netip.MustParseAddrPort("127.0.0.1:53")},
		},
	} {
		got := make(map[string]socket)
		if err := parseSocketTable(strings.NewReader(table), network, got); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got, cmp.Comparer(func(a, b socket) bool { return a == b })); diff != "" {
			t.Errorf("parseSocketTable(%s) (-want +got):\n%s", network, diff)
		}
	}
}

func TestParseSocketTableRefusesNonsense(t *testing.T) {
	for _, address := range []string{"", "0100007F", "0100007F:XYZ", "01:0016", "0100007G:0016"} {
		if got, err := parseSocketAddress(address); err == nil {
			t.Errorf("parseSocketAddress(%q) = %v", address, got)
		}
	}
}

func TestCheckLoopback(t *testing.T) {
	for address, reachable := range map[string]bool{
		"127.0.0.1:1":          false,
		"127.8.8.8:1":          false,
		"[::1]:1":              false,
		"[::ffff:127.0.0.1]:1": false,
		"0.0.0.0:1":            true,
		"[::]:1":               true,
		"192.168.1.1:1":        true,
	} {
		for _, network := range []string{"tcp", "udp"} {
			l := Listener{Process: "p", Network: network, Address: netip.MustParseAddrPort(address)}
			err := checkLoopbackTwice(func() ([]Listener, error) { return []Listener{l}, nil })
			if (err != nil) != reachable {
				t.Errorf("checkLoopbackTwice(%s) = %v", l, err)
			}
		}
	}
}

// A UDP socket that is about to connect is no listener.
func TestCheckLoopbackLooksTwice(t *testing.T) {
	for network, fails := range map[string]bool{"tcp": true, "udp": false} {
		looks := [][]Listener{{{Process: "p", Network: network, Address: netip.MustParseAddrPort("0.0.0.0:1")}}, nil}
		err := checkLoopbackTwice(func() ([]Listener, error) {
			look := looks[0]
			looks = looks[1:]
			return look, nil
		})
		if (err != nil) != fails {
			t.Errorf("%s: checkLoopbackTwice() = %v", network, err)
		}
	}
}

func TestPortTaken(t *testing.T) {
	var port int
	// Bound and not listening counts, with SO_REUSEADDR as Go's net package sets it.
	t.Run("bound", func(t *testing.T) {
		address, err := netip.ParseAddrPort(loopback.Address(t))
		if err != nil {
			t.Fatal(err)
		}
		port = int(address.Port())
		if taken, err := portTaken(port); err != nil || !taken {
			t.Errorf("portTaken() of a bound port = %v, %v", taken, err)
		}
	})
	if taken, err := portTaken(port); err != nil || taken {
		t.Errorf("portTaken() of a port set free = %v, %v", taken, err)
	}
}
