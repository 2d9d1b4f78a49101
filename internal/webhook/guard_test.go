package webhook

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestGuardRefusesWhatIsNoReceiver(t *testing.T) {
	t.Parallel()
	g := newGuard(nil, nil)
	for _, refused := range []string{
		"0.0.0.0", "0.1.2.3", "169.254.0.1", "169.254.169.254", "224.0.0.1", "239.255.255.255", "255.255.255.255",
		"::", "fe80::1", "fe80::1%eth0", "febf::1", "ff02::1",
		"::ffff:169.254.169.254", "::ffff:0.0.0.0", "::169.254.169.254",
		"64:ff9b::169.254.169.254", "64:ff9b::224.0.0.1", "64:ff9b:1::169.254.169.254", "64:ff9b:1:a9fe:a9:fe00::",
		"2002:a9fe:a9fe::1", "2002:e000:1::",
		"2001:0:a9fe:a9fe::1", "2001:0:102:304:0:0:5601:5601",
	} {
		assert.Error(t, g.check(netip.MustParseAddr(refused)), refused)
	}
	for _, allowed := range []string{
		"127.0.0.1", "::1", "10.0.0.1", "172.16.0.1", "192.168.1.1", "fd00::1", "203.0.113.7", "2a00::1",
		"::ffff:10.0.0.1", "64:ff9b::10.0.0.1", "2002:a00:1::1", "100.64.0.1", "223.255.255.255", "169.253.255.255",
	} {
		assert.NoError(t, g.check(netip.MustParseAddr(allowed)), allowed)
	}
}

func TestGuardListsAreConfigurable(t *testing.T) {
	t.Parallel()
	g := newGuard(
		[]netip.Prefix{netip.MustParsePrefix("10.1.0.0/16"), netip.MustParsePrefix("169.254.10.0/24")},
		[]netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("fd00::/8")},
	)
	for addr, ok := range map[string]bool{
		"10.0.0.1": false, "10.1.0.1": true, "::ffff:10.0.0.1": false, "64:ff9b::10.0.0.1": false, "64:ff9b::10.1.0.1": true,
		"fd00::1": false, "169.254.10.1": true, "169.254.11.1": false, "192.168.0.1": true,
	} {
		assert.Equal(t, ok, g.check(netip.MustParseAddr(addr)) == nil, addr)
	}
}

func TestGuardSeesTheDialledAddress(t *testing.T) {
	t.Parallel()
	g := newGuard(nil, nil)
	assert.NoError(t, g.control("tcp4", "127.0.0.1:80", nil))
	assert.ErrorContains(t, g.control("tcp4", "169.254.169.254:80", nil), "may not be called")
	assert.ErrorContains(t, g.control("tcp6", "[fe80::1%eth0]:80", nil), "may not be called")
	assert.Error(t, g.control("tcp", "metadata:80", nil), "what cannot be judged is refused")
}
