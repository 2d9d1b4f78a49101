package consulstore

import (
	"bytes"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/coordsvc/coordsvc/internal/service"
)

func TestEscapedKeysStayDistinctAndKeepPrefixes(t *testing.T) {
	keys := []string{"", "a", "a/b", "a%2Fb", "a%2fb", "a%252Fb", "a b", "ü", "\x00", "\xff", "peer/..", "//", "a\x00b"}
	seen := map[string]string{}
	for _, k := range keys {
		escaped := dataKey(k)
		if other, ok := seen[escaped]; ok {
			t.Errorf("%q and %q are both %q", k, other, escaped)
		}
		seen[escaped] = k
		if back, err := recordKey(escaped); err != nil || back != k {
			t.Errorf("%q came back as %q (%v)", k, back, err)
		}
		for _, p := range keys {
			if strings.HasPrefix(dataKey(k), dataKey(p)) != strings.HasPrefix(k, p) {
				t.Errorf("%q and %q: escaping changed whether one begins with the other", k, p)
			}
		}
	}
	for _, bad := range []string{"other/x", dataDir + "%", dataDir + "%4", dataDir + "%zz", dataDir + "%2f"} {
		if _, err := recordKey(bad); !errors.Is(err, service.ErrCorrupt) {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

func TestEveryFlippedBitIsNoticed(t *testing.T) {
	sealed := seal("k", kindValue, "nonce-nonce", []byte("payload"))
	if k, payload, err := unseal("k", sealed); err != nil || k != kindValue || string(payload) != "payload" {
		t.Fatalf("%q %q %v", k, payload, err)
	}
	if _, _, err := unseal("other", sealed); !errors.Is(err, service.ErrCorrupt) {
		t.Errorf("under another key: %v", err)
	}
	for bit := range 8 * len(sealed) {
		harmed := slices.Clone(sealed)
		harmed[bit/8] ^= 1 << (bit % 8)
		if _, _, err := unseal("k", harmed); !errors.Is(err, service.ErrCorrupt) {
			t.Errorf("bit %d: %v", bit, err)
		}
	}
}

func TestManifestsAndChangesComeBack(t *testing.T) {
	m := manifest{id: "ID", offset: 7, length: maxValues, sum: math.MaxUint32}
	if back, err := decodeManifest("k", m.encode()); err != nil || back != m {
		t.Errorf("%+v came back as %+v (%v)", m, back, err)
	}
	c := changeRecord{puts: []sealedPut{{"a", []byte("1")}, {"", []byte{}}}, deletes: []string{"gone", ""}}
	back, err := decodeChange("k", c.encode())
	if err != nil || len(back.puts) != 2 || back.puts[0].key != "a" || string(back.puts[0].sealed) != "1" || !slices.Equal(back.deletes, c.deletes) {
		t.Errorf("%+v came back as %+v (%v)", c, back, err)
	}
	huge := manifest{id: "ID", offset: 0, length: maxValues + 1}
	if _, err := decodeManifest("k", huge.encode()); !errors.Is(err, service.ErrCorrupt) {
		t.Errorf("a manifest of %d bytes: %v", huge.length, err)
	}
}

// Whatever bytes are stored, decoding them neither panics nor takes memory that they do not have.
func FuzzDecodeChange(f *testing.F) {
	f.Add(changeRecord{puts: []sealedPut{{"a", []byte("1")}}, deletes: []string{"b"}}.encode())
	f.Add([]byte{255, 255, 255, 255, 255, 255, 255, 255, 255, 1})
	f.Fuzz(func(t *testing.T, payload []byte) {
		c, err := decodeChange("k", payload)
		if err != nil {
			if !errors.Is(err, service.ErrCorrupt) {
				t.Fatal(err)
			}
			return
		}
		again, err := decodeChange("k", c.encode())
		if err != nil || !bytes.Equal(again.encode(), c.encode()) {
			t.Fatalf("%+v does not come back: %+v, %v", c, again, err)
		}
	})
}
