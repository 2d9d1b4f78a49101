package standalone

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"

	"github.com/coordsvc/coordsvc/internal/service"
)

// A stored record is CRC-32C (4 bytes), revision (8 bytes), value. The checksum covers key, revision and value: a
// flipped bit in a key would otherwise serve a sound value under a wrong name.
const (
	checksumSize = 4
	headerSize   = checksumSize + 8
)

// The state record is format (1 byte), revision, count, digest (8 bytes each), CRC-32C of these.
const (
	stateFormat = 1
	stateSize   = 1 + 3*8 + checksumSize
)

// Buckets and keys of the file.
const (
	recordsBucket = "records"
	stateBucket   = "state"
	stateKey      = "state"
)

// state describes all records together.
type state struct {
	revision uint64
	count    uint64
	// digest is the XOR of fingerprint over all records, so that it is kept up to date one record at a time.
	digest uint64
}

func castagnoli() *crc32.Table { return crc32.MakeTable(crc32.Castagnoli) }

// encodeRecord returns the stored form; its tail from headerSize on is a copy of value.
func encodeRecord(key string, revision uint64, value []byte) []byte {
	stored := make([]byte, headerSize+len(value))
	binary.BigEndian.PutUint64(stored[checksumSize:], revision)
	copy(stored[headerSize:], value)
	binary.BigEndian.PutUint32(stored, recordChecksum([]byte(key), stored[checksumSize:]))
	return stored
}

// decodeRecord checks the stored form and returns the revision and the value, which aliases stored.
func decodeRecord(key, stored []byte) (revision uint64, value []byte, err error) {
	if len(stored) < headerSize {
		return 0, nil, fmt.Errorf("record %q is cut short: %w", key, service.ErrCorrupt)
	}
	if binary.BigEndian.Uint32(stored) != recordChecksum(key, stored[checksumSize:]) {
		return 0, nil, fmt.Errorf("record %q fails its checksum: %w", key, service.ErrCorrupt)
	}
	return binary.BigEndian.Uint64(stored[checksumSize:]), stored[headerSize:], nil
}

func recordChecksum(key, rest []byte) uint32 {
	table := castagnoli()
	return crc32.Update(crc32.Checksum(key, table), table, rest)
}

// fingerprint identifies one version of one record: FNV-1a over key and revision. The
// value is not needed, since the record's own checksum ties it to both.
func fingerprint(key []byte, revision uint64) uint64 {
	const offset, prime = 14695981039346656037, 1099511628211
	h := uint64(offset)
	for _, b := range key {
		h = (h ^ uint64(b)) * prime
	}
	for shift := 0; shift < 64; shift += 8 {
		h = (h ^ (revision >> shift & 0xff)) * prime
	}
	return h
}

// put and remove account for one record version that comes or goes.
func (s *state) put(key []byte, revision uint64) {
	s.count++
	s.digest ^= fingerprint(key, revision)
}

func (s *state) remove(key []byte, revision uint64) {
	s.count--
	s.digest ^= fingerprint(key, revision)
}

func encodeState(s state) []byte {
	b := make([]byte, 0, stateSize)
	b = append(b, stateFormat)
	b = binary.BigEndian.AppendUint64(b, s.revision)
	b = binary.BigEndian.AppendUint64(b, s.count)
	b = binary.BigEndian.AppendUint64(b, s.digest)
	return binary.BigEndian.AppendUint32(b, crc32.Checksum(b, castagnoli()))
}

func decodeState(b []byte) (state, error) {
	if len(b) != stateSize {
		return state{}, fmt.Errorf("the state record is %d bytes long instead of %d: %w", len(b), stateSize, service.ErrCorrupt)
	}
	body, sum := b[:stateSize-checksumSize], b[stateSize-checksumSize:]
	if crc32.Checksum(body, castagnoli()) != binary.BigEndian.Uint32(sum) {
		return state{}, fmt.Errorf("the state record fails its checksum: %w", service.ErrCorrupt)
	}
	if body[0] != stateFormat {
		return state{}, fmt.Errorf("the store has format %d, this program reads format %d: use the program that wrote it, or a newer one", body[0], stateFormat)
	}
	return state{
		revision: binary.BigEndian.Uint64(body[1:]),
		count:    binary.BigEndian.Uint64(body[9:]),
		digest:   binary.BigEndian.Uint64(body[17:]),
	}, nil
}
