package webhook

import (
	"fmt"
	"net"
	"net/netip"
	"syscall"
)

// refusedError says that an address may not be called.
type refusedError struct{ addr netip.Addr }

func (e *refusedError) Error() string {
	return fmt.Sprintf("address %s may not be called (link-local, multicast, unspecified or denied by configuration)", e.addr)
}

// guard decides which addresses may be called. Private and loopback ones may.
type guard struct{ allow, deny []netip.Prefix }

// builtinDenied are never legitimate receivers: link-local carries the metadata services of the clouds.
func builtinDenied() []netip.Prefix {
	return []netip.Prefix{
		netip.MustParsePrefix("0.0.0.0/8"),
		netip.MustParsePrefix("169.254.0.0/16"),
		netip.MustParsePrefix("224.0.0.0/4"),
		netip.MustParsePrefix("255.255.255.255/32"),
		netip.MustParsePrefix("::/128"),
		netip.MustParsePrefix("fe80::/10"),
		netip.MustParsePrefix("ff00::/8"),
	}
}

func newGuard(allow, deny []netip.Prefix) guard {
	return guard{allow: allow, deny: append(builtinDenied(), deny...)}
}

// check refuses an address if it, or an IPv4 address that it wraps, is denied and not allowed.
func (g guard) check(addr netip.Addr) error {
	for _, form := range forms(addr) {
		if contains(g.deny, form) && !contains(g.allow, form) {
			return &refusedError{addr.Unmap()}
		}
	}
	return nil
}

// control is the dialler's hook: it sees the address after DNS, right before connecting to it.
func (g guard) control(network, address string, _ syscall.RawConn) error {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return fmt.Errorf("check address %s/%s: %w", network, address, err)
	}
	addr, err := netip.ParseAddr(host)
	if err != nil {
		return fmt.Errorf("check address %s/%s: %w", network, address, err)
	}
	return g.check(addr)
}

func contains(prefixes []netip.Prefix, addr netip.Addr) bool {
	for _, p := range prefixes {
		if p.Contains(addr) {
			return true
		}
	}
	return false
}

// forms lists an address and the IPv4 addresses it stands for on the way: a translator or tunnel would unwrap
// NAT64 (64:ff9b::/96 and the local-use 64:ff9b:1::/48), 6to4, Teredo and IPv4-compatible addresses.
func forms(addr netip.Addr) []netip.Addr {
	addr = addr.WithZone("").Unmap()
	list := []netip.Addr{addr}
	if addr.Is4() {
		return list
	}
	b := addr.As16()
	last := netip.AddrFrom4([4]byte(b[12:16]))
	switch {
	case netip.MustParsePrefix("64:ff9b::/96").Contains(addr),
		netip.MustParsePrefix("::/96").Contains(addr) && addr != netip.IPv6Unspecified() && addr != netip.IPv6Loopback():
		list = append(list, last)
	case netip.MustParsePrefix("64:ff9b:1::/48").Contains(addr):
		// The operator chooses where the IPv4 address lies (RFC 6052): after 48 bits, split by a zero byte, or last.
		list = append(list, last, netip.AddrFrom4([4]byte{b[6], b[7], b[9], b[10]}))
	case netip.MustParsePrefix("2002::/16").Contains(addr):
		list = append(list, netip.AddrFrom4([4]byte(b[2:6])))
	case netip.MustParsePrefix("2001::/32").Contains(addr):
		list = append(list, netip.AddrFrom4([4]byte(b[4:8])),
			netip.AddrFrom4([4]byte{^b[12], ^b[13], ^b[14], ^b[15]}))
	}
	return list
}
