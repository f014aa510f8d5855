//go:build linux

package kubelet

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"runtime"
	"slices"

	"golang.org/x/sys/unix"
)

// outside is the network at the other end of a pod's only link, in which every address but the pod's is one to listen
// on: a program of the pod may listen on all addresses of a port that a Service has, too. Who calls an address on which
// nothing listens is refused.
type outside struct {
	is        *os.File // keeps it
	listeners []net.Listener
}

// Names of the ends of the link.
const (
	endOfPod     = "eth0"
	endOfOutside = "out"
)

// newOutside links the network of the process, which is new, to one that listens on addresses, host:port. own is the
// pod's address.
func newOutside(ctx context.Context, own netip.Addr, addresses []string) (*outside, error) {
	pod, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		return nil, err
	}
	defer func() { _ = pod.Close() }() // only read
	out := &outside{}
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // for ever: the thread ends with the goroutine, and is in another network than all others
		done <- out.begin(ctx, pod, own, addresses)
	}()
	if err := <-done; err != nil {
		return nil, errors.Join(err, out.close())
	}
	return out, withNetlink(func(n netlink) error {
		return errors.Join(n.up("lo"), n.up(endOfPod), n.address(endOfPod, own),
			n.route(endOfPod, netip.PrefixFrom(netip.IPv4Unspecified(), 0), unix.RTN_UNICAST))
	})
}

// begin makes the network on a thread that nothing else uses.
func (o *outside) begin(ctx context.Context, pod *os.File, own netip.Addr, addresses []string) (err error) {
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("make a network: %w", err)
	}
	if o.is, err = os.Open("/proc/thread-self/ns/net"); err != nil {
		return err
	}
	if err := withNetlink(func(n netlink) error {
		if err := n.pair(endOfOutside, endOfPod, pod); err != nil {
			return err
		}
		return errors.Join(n.up("lo"), n.up(endOfOutside),
			n.route(endOfOutside, netip.PrefixFrom(own, own.BitLen()), unix.RTN_UNICAST),
			n.route("lo", netip.PrefixFrom(netip.IPv4Unspecified(), 0), unix.RTN_LOCAL))
	}); err != nil {
		return err
	}
	for _, address := range addresses {
		l, err := listen(ctx, "tcp", address)
		if err != nil {
			return err
		}
		o.listeners = append(o.listeners, l)
	}
	return nil
}

// close ends the network, when nothing accepts from it any more.
func (o *outside) close() error {
	var errs []error
	for _, l := range o.listeners {
		if err := l.Close(); !errors.Is(err, net.ErrClosed) {
			errs = append(errs, err)
		}
	}
	if o.is != nil {
		errs = append(errs, o.is.Close())
	}
	return errors.Join(errs...)
}

// netlink is a socket by which the network of the thread that opened it is changed (rtnetlink(7)).
type netlink struct{ socket int }

func withNetlink(change func(netlink) error) error {
	socket, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE)
	if err != nil {
		return err
	}
	return errors.Join(change(netlink{socket}), unix.Close(socket))
}

// do sends a request and returns what the kernel makes of it.
func (n netlink) do(kind, flags uint16, body ...[]byte) error {
	content := slices.Concat(body...)
	request, err := binary.Append(nil, binary.NativeEndian, unix.NlMsghdr{
		Len: uint32(unix.SizeofNlMsghdr + len(content)), Type: kind, //nolint:gosec // a few bytes
		Flags: unix.NLM_F_REQUEST | unix.NLM_F_ACK | flags,
	})
	if err != nil {
		return err
	}
	if err := unix.Sendto(n.socket, append(request, content...), 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return err
	}
	answer := make([]byte, os.Getpagesize())
	size, _, err := unix.Recvfrom(n.socket, answer, 0)
	if err != nil {
		return err
	}
	const code = unix.SizeofNlMsghdr + 4
	if size < code || binary.NativeEndian.Uint16(answer[4:]) != unix.NLMSG_ERROR {
		return errors.New("the kernel answers with something else")
	}
	if number := int32(binary.NativeEndian.Uint32(answer[unix.SizeofNlMsghdr:])); number != 0 { //nolint:gosec // an errno
		return unix.Errno(-number)
	}
	return nil
}

// attribute is one of a request, padded to four bytes.
func attribute(kind uint16, content ...[]byte) []byte {
	const align = 4
	value := slices.Concat(content...)
	size := unix.SizeofRtAttr + len(value)
	out := binary.NativeEndian.AppendUint16(nil, uint16(size)) //nolint:gosec // a few bytes
	out = append(binary.NativeEndian.AppendUint16(out, kind), value...)
	return append(out, make([]byte, (align-size%align)%align)...)
}

func number(n int) []byte {
	return binary.NativeEndian.AppendUint32(nil, uint32(n)) //nolint:gosec // an index, or a file
}

// head is how a request about links, addresses or routes begins.
func head(message any) []byte {
	out, err := binary.Append(nil, binary.NativeEndian, message)
	if err != nil {
		panic(err) // the messages below have a size
	}
	return out
}

// pair makes a link of two ends, of which the second is in another network.
func (n netlink) pair(end, other string, network *os.File) error {
	const peer = 1 // VETH_INFO_PEER
	err := n.do(unix.RTM_NEWLINK, unix.NLM_F_CREATE|unix.NLM_F_EXCL,
		head(unix.IfInfomsg{}), attribute(unix.IFLA_IFNAME, []byte(end+"\x00")),
		attribute(unix.IFLA_LINKINFO, attribute(unix.IFLA_INFO_KIND, []byte("veth")),
			attribute(unix.IFLA_INFO_DATA, attribute(peer, head(unix.IfInfomsg{}),
				attribute(unix.IFLA_IFNAME, []byte(other+"\x00")), attribute(unix.IFLA_NET_NS_FD, number(int(network.Fd())))))))
	if err != nil {
		return fmt.Errorf("make a link (veth): %w", err)
	}
	return nil
}

func (n netlink) up(name string) error {
	link, err := net.InterfaceByName(name)
	if err != nil {
		return err
	}
	err = n.do(unix.RTM_NEWLINK, 0, head(unix.IfInfomsg{Index: int32(link.Index), Flags: unix.IFF_UP, Change: unix.IFF_UP})) //nolint:gosec // an index
	if err != nil {
		return fmt.Errorf("bring %s up: %w", name, err)
	}
	return nil
}

func (n netlink) address(name string, own netip.Addr) error {
	link, err := net.InterfaceByName(name)
	if err != nil {
		return err
	}
	err = n.do(unix.RTM_NEWADDR, unix.NLM_F_CREATE|unix.NLM_F_EXCL,
		head(unix.IfAddrmsg{Family: unix.AF_INET, Prefixlen: uint8(own.BitLen()), Index: uint32(link.Index)}), //nolint:gosec // small
		attribute(unix.IFA_LOCAL, own.AsSlice()), attribute(unix.IFA_ADDRESS, own.AsSlice()))
	if err != nil {
		return fmt.Errorf("give address %s: %w", own, err)
	}
	return nil
}

// route has addresses be reached by a link, or be local.
func (n netlink) route(name string, to netip.Prefix, kind uint8) error {
	link, err := net.InterfaceByName(name)
	if err != nil {
		return err
	}
	scope := uint8(unix.RT_SCOPE_LINK)
	if kind == unix.RTN_LOCAL {
		scope = unix.RT_SCOPE_HOST
	}
	parts := [][]byte{
		head(unix.RtMsg{Family: unix.AF_INET, Dst_len: uint8(to.Bits()), //nolint:gosec // at most 32
			Table: unix.RT_TABLE_MAIN, Protocol: unix.RTPROT_STATIC, Scope: scope, Type: kind}),
		attribute(unix.RTA_OIF, number(link.Index)),
	}
	if to.Bits() > 0 {
		parts = append(parts, attribute(unix.RTA_DST, to.Addr().AsSlice()))
	}
	if err := n.do(unix.RTM_NEWROUTE, unix.NLM_F_CREATE|unix.NLM_F_EXCL, parts...); err != nil {
		return fmt.Errorf("route %s by %s: %w", to, name, err)
	}
	return nil
}
