package consulstore

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"strings"

	"github.com/coordsvc/coordsvc/internal/service"
)

// The layout under Root.
const (
	dataDir    = "data/"    // one key a record
	changesDir = "changes/" // one key a recent transaction
	partsDir   = "parts/"   // <id>/keys and <id>/<n>: large values of one transaction, joined
	headKey    = "head"     // written by every transaction: its index is the store's revision
	trimmedKey = "trimmed"  // the highest revision whose change record was deleted
	probeKey   = "probe"    // written to learn whether writes work
)

// kind says what a stored value is.
type kind byte

const (
	kindValue    kind = 'v' // a record's value itself
	kindManifest kind = 'm' // where the record's value lies in parts
	kindChange   kind = 'c'
	kindMark     kind = 'k' // head, probe, trimmed
	kindOwners   kind = 'o' // the keys whose values lie in one id's parts
	kindPart     kind = 'p'
)

// Every stored value begins with a header: format, kind, nonce, CRC-32C over the key and all but the CRC itself. The
// nonce is the transaction's: Consul does not move a key's index when a write changes nothing, and every
// put must be seen as one.
const (
	format     = 1
	nonceAt    = 2
	nonceSize  = 8
	crcAt      = nonceAt + nonceSize
	headerSize = crcAt + 4
)

// castagnoli is a function, as the table must not be package state; crc32 keeps it.
func castagnoli() *crc32.Table { return crc32.MakeTable(crc32.Castagnoli) }

func checksum(key string, sealed []byte) uint32 {
	table := castagnoli()
	sum := crc32.Update(0, table, []byte(key))
	sum = crc32.Update(sum, table, sealed[:crcAt])
	return crc32.Update(sum, table, sealed[headerSize:])
}

// seal makes a stored value. key is relative to Root.
func seal(key string, k kind, id string, payload []byte) []byte {
	sealed := make([]byte, headerSize+len(payload))
	sealed[0], sealed[1] = format, byte(k)
	copy(sealed[nonceAt:crcAt], id)
	copy(sealed[headerSize:], payload)
	binary.BigEndian.PutUint32(sealed[crcAt:], checksum(key, sealed))
	return sealed
}

// unseal undoes seal; the payload is a part of sealed.
func unseal(key string, sealed []byte) (k kind, payload []byte, err error) {
	switch {
	case len(sealed) < headerSize:
		return 0, nil, damaged(key, "%d bytes are no stored value", len(sealed))
	case sealed[0] != format:
		return 0, nil, damaged(key, "format %d is unknown, this program writes %d", sealed[0], format)
	case binary.BigEndian.Uint32(sealed[crcAt:]) != checksum(key, sealed):
		return 0, nil, damaged(key, "the checksum does not match")
	}
	return kind(sealed[1]), sealed[headerSize:len(sealed):len(sealed)], nil
}

// unsealAs also demands a kind.
func unsealAs(key string, want kind, sealed []byte) ([]byte, error) {
	got, payload, err := unseal(key, sealed)
	if err == nil && got != want {
		err = damaged(key, "it is of kind %q, not %q", got, want)
	}
	return payload, err
}

func damaged(key, format string, args ...any) error {
	return fmt.Errorf("key %q: %s: %w", key, fmt.Sprintf(format, args...), service.ErrCorrupt)
}

// dataKey escapes a record's key byte by byte, so that a prefix stays a prefix. Consul ends keys with a zero byte in its
// index and takes UTF-8 only, and other tools name keys in URLs.
func dataKey(key string) string {
	const hex = "0123456789ABCDEF"
	plain := true
	for i := range len(key) {
		plain = plain && isPlain(key[i])
	}
	if plain {
		return dataDir + key
	}
	var b strings.Builder
	b.WriteString(dataDir)
	for i := range len(key) {
		if c := key[i]; isPlain(c) {
			b.WriteByte(c)
		} else {
			b.Write([]byte{'%', hex[c>>4], hex[c&15]})
		}
	}
	return b.String()
}

func isPlain(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || strings.IndexByte("/-_.~:@=+,", c) >= 0
}

// recordKey undoes dataKey.
func recordKey(key string) (string, error) {
	rest, ok := strings.CutPrefix(key, dataDir)
	if !ok {
		return "", damaged(key, "it is outside of %s", dataDir)
	}
	if !strings.Contains(rest, "%") {
		return rest, nil
	}
	var b strings.Builder
	for i := 0; i < len(rest); i++ {
		if rest[i] != '%' {
			b.WriteByte(rest[i])
			continue
		}
		if i+2 >= len(rest) {
			return "", damaged(key, "an escape is cut off")
		}
		high, low := unhex(rest[i+1]), unhex(rest[i+2])
		if high < 0 || low < 0 {
			return "", damaged(key, "%q is no escape", rest[i:i+3])
		}
		b.WriteByte(byte(high<<4 | low))
		i += 2
	}
	return b.String(), nil
}

func unhex(c byte) int { return strings.IndexByte("0123456789ABCDEF", c) }

// manifest says where in the parts of one transaction a value lies.
type manifest struct {
	id             string
	offset, length uint64
	sum            uint32
}

func (m manifest) encode() []byte {
	b := appendBytes(nil, m.id)
	b = binary.AppendUvarint(b, m.offset)
	b = binary.AppendUvarint(b, m.length)
	return binary.BigEndian.AppendUint32(b, m.sum)
}

func decodeManifest(key string, payload []byte) (manifest, error) {
	r := reader{rest: payload}
	m := manifest{id: string(r.bytes()), offset: r.uvarint(), length: r.uvarint()}
	if r.bad || len(r.rest) != 4 || m.length > maxValues || m.offset > maxValues {
		return manifest{}, damaged(key, "its manifest is malformed")
	}
	m.sum = binary.BigEndian.Uint32(r.rest)
	return m, nil
}

// changeRecord is what one transaction did: the puts with their stored values (a manifest for a large one).
type changeRecord struct {
	puts    []sealedPut
	deletes []string
}

type sealedPut struct {
	key    string
	sealed []byte
}

func (c changeRecord) encode() []byte {
	size := 0
	for _, p := range c.puts {
		size += len(p.key) + len(p.sealed) + 2*binary.MaxVarintLen32
	}
	b := binary.AppendUvarint(make([]byte, 0, size+binary.MaxVarintLen32), uint64(len(c.puts)))
	for _, p := range c.puts {
		b = appendBytes(b, p.key)
		b = appendBytes(b, p.sealed)
	}
	return encodeKeys(b, c.deletes)
}

func decodeChange(key string, payload []byte) (changeRecord, error) {
	r := reader{rest: payload}
	var c changeRecord
	for n := r.uvarint(); n > 0 && !r.bad; n-- {
		c.puts = append(c.puts, sealedPut{key: string(r.bytes()), sealed: r.bytes()})
	}
	c.deletes = r.keys()
	if r.bad || len(r.rest) != 0 {
		return changeRecord{}, damaged(key, "the change record is malformed")
	}
	return c, nil
}

func encodeKeys(b []byte, keys []string) []byte {
	b = binary.AppendUvarint(b, uint64(len(keys)))
	for _, k := range keys {
		b = appendBytes(b, k)
	}
	return b
}

func appendBytes[T string | []byte](b []byte, value T) []byte {
	b = binary.AppendUvarint(b, uint64(len(value)))
	return append(b, value...)
}

// reader reads what the encoders write, and remembers that something did not fit.
type reader struct {
	rest []byte
	bad  bool
}

func (r *reader) uvarint() uint64 {
	n, size := binary.Uvarint(r.rest)
	if size <= 0 {
		r.bad, r.rest = true, nil
		return 0
	}
	r.rest = r.rest[size:]
	return n
}

func (r *reader) bytes() []byte {
	n := r.uvarint()
	if n > uint64(len(r.rest)) {
		r.bad, r.rest = true, nil
		return nil
	}
	b := r.rest[:n:n]
	r.rest = r.rest[n:]
	return b
}

func (r *reader) keys() []string {
	var keys []string
	for n := r.uvarint(); n > 0 && !r.bad; n-- {
		keys = append(keys, string(r.bytes()))
	}
	return keys
}
