"""Plain word lists of the corpus, in the project's own selection."""


def split(text):
    """Items separated by commas or line ends."""
    return [w.strip() for w in text.replace("\n", ",").split(",") if w.strip()]


ANIMALS = split("""cat, dog, fox, bear, wolf, rabbit, mouse, horse, cow, sheep, goat, pig, hen, duck, goose, owl, eagle
crow, swan, frog, toad, snake, lizard, turtle, tiger, lion, elephant, giraffe, zebra, monkey, camel, kangaroo, penguin
whale, dolphin, shark, seal, otter, beaver, badger, hedgehog, squirrel, deer, moose, bat, bee, ant, butterfly, spider
snail, crab, octopus, parrot, peacock, donkey, hamster, raccoon, koala, panda, mole, sparrow, robin, salmon, ladybird
dragon, unicorn, kitten, puppy, rat, crocodile, hippo, ostrich, flamingo, pigeon, worm, jellyfish, leopard, gorilla""")

FRUITS = split("""apple, pear, plum, cherry, banana, orange, lemon, lime, grape, peach, apricot, mango, melon, kiwi
strawberry, raspberry, blueberry, pineapple, fig, coconut""")
VEGETABLES = split("""carrot, potato, onion, tomato, cabbage, pea, bean, leek, spinach, pumpkin, cucumber, lettuce
radish, turnip, beetroot, garlic, celery, broccoli""")
COLOURS = split("red, blue, green, yellow, orange, purple, pink, brown, black, white, grey, gold, silver")
DRINKS = split("water, tea, coffee, milk, juice, lemonade, cocoa, soup")
FOODS = split("""bread, butter, cheese, rice, pasta, soup, egg, honey, jam, cake, biscuit, salad, porridge, pancake
sandwich, pizza, fish, noodles, yoghurt, chocolate""")
CLOTHES = split("shirt, coat, hat, scarf, sock, shoe, boot, glove, belt, dress, skirt, jacket, jumper, cap")
TOOLS = split("hammer, saw, drill, spanner, pliers, screwdriver, axe, spade, rake, chisel, file, wrench")
FURNITURE = split("table, chair, bed, sofa, shelf, desk, cupboard, stool, bench, wardrobe, lamp, drawer")
VEHICLES = split("car, bus, train, bicycle, tram, boat, ship, plane, lorry, van, tractor, scooter, ferry, rocket")
INSTRUMENTS = split("piano, violin, flute, drum, guitar, trumpet, harp, cello, clarinet, organ, trombone, banjo")
SPORTS = split("football, tennis, rowing, swimming, running, cycling, hockey, skating, golf, rugby, chess, sailing")
JOBS = split("""baker, teacher, doctor, nurse, farmer, driver, pilot, cook, gardener, painter, carpenter, plumber
sailor, writer, singer, tailor, builder, judge, vet, librarian, engineer, waiter, barber, potter""")
TREES = split("oak, birch, pine, willow, maple, ash, elm, beech, fir, poplar, cedar, chestnut")
FLOWERS = split("rose, tulip, daisy, lily, poppy, violet, sunflower, iris, daffodil, orchid, lavender, crocus")
BODY = split("""head, hand, foot, arm, leg, knee, elbow, nose, ear, eye, mouth, neck, finger, toe, shoulder, back
heart, lung, brain, stomach""")
METALS = split("iron, gold, silver, copper, tin, lead, zinc, nickel, steel, bronze")
ROOMS = split("kitchen, bedroom, bathroom, hall, cellar, attic, study, garage, pantry")
WEATHERS = split("rain, snow, wind, sun, fog, hail, frost, thunder, cloud, storm, drizzle")
SHAPES = split("circle, square, triangle, rectangle, pentagon, hexagon, oval, star, cube, sphere, cone")
DAYS = split("Monday, Tuesday, Wednesday, Thursday, Friday, Saturday, Sunday")
MONTHS = split("""January, February, March, April, May, June, July, August, September, October, November, December""")
SEASONS = split("spring, summer, autumn, winter")
PLANETS = split("Mercury, Venus, Earth, Mars, Jupiter, Saturn, Uranus, Neptune")
CONTINENTS = split("Africa, Antarctica, Asia, Europe, North America, Oceania, South America")
OCEANS = split("the Pacific, the Atlantic, the Indian Ocean, the Southern Ocean, the Arctic Ocean")
SENSES = split("sight, hearing, smell, taste, touch")
SCHOOL = split("pen, pencil, ruler, book, paper, rubber, chalk, bag, notebook, glue")
TOYS = split("ball, doll, kite, puzzle, top, teddy bear, marble, train set, swing, yo-yo")
BUILDINGS = split("house, church, school, castle, tower, barn, mill, bridge, museum, library, theatre, factory")
RIVERS = split("the Nile, the Amazon, the Danube, the Rhine, the Thames, the Seine, the Volga, the Ganges")

LISTS = {  # what "name three ..." asks for
    "animals": ANIMALS, "fruits": FRUITS, "vegetables": VEGETABLES, "colours": COLOURS, "drinks": DRINKS,
    "foods": FOODS, "clothes": CLOTHES, "tools": TOOLS, "pieces of furniture": FURNITURE, "vehicles": VEHICLES,
    "musical instruments": INSTRUMENTS, "sports": SPORTS, "jobs": JOBS, "trees": TREES, "flowers": FLOWERS,
    "parts of the body": BODY, "metals": METALS, "rooms": ROOMS, "kinds of weather": WEATHERS, "shapes": SHAPES,
    "things for school": SCHOOL, "toys": TOYS, "buildings": BUILDINGS, "rivers": RIVERS,
    "planets": PLANETS, "months": MONTHS, "days": DAYS, "seasons": SEASONS, "continents": CONTINENTS,
    "oceans": OCEANS, "senses": SENSES,
}

NAMES = split("""Ann, Ben, Carla, David, Emma, Frank, Grace, Henry, Ida, Jack, Karen, Leo, Maria, Nick, Olga, Paul
Rosa, Sam, Tina, Victor, Wendy, Yusuf, Zoe, Alice, Bob, Clara, Dan, Eva, Felix, Gina, Hugo, Iris, Jonas, Kim, Lena
Max, Nora, Oscar, Pia, Ravi, Sara, Tom, Uma, Vera, Will, Alex, Anna, Peter, John, Mary, James, Lucy, Martin, Laura
Chris, Julia, Mark, Sofia, Daniel, Elena, Ali, Mei, Kenji, Priya, Omar, Lars, Ingrid, Pablo, Marco, Nina, Simon""")
CITIES = split("""London, Paris, Berlin, Rome, Madrid, Vienna, Oslo, Prague, Lisbon, Dublin, Athens, Warsaw, Helsinki
Tokyo, Cairo, Delhi, Boston, Chicago, Toronto, Sydney, Hamburg, Munich, Milan, Naples, Geneva, Zurich, Lyon, Porto
Bergen, Riga, Lima, Quito, Bogota, Nairobi, Seoul, Beijing, Dallas, Denver, Seattle, Leeds, Bristol, Glasgow, Cork
New York, Mexico City, Cape Town, Buenos Aires, Hong Kong, San Francisco, Los Angeles, Istanbul, Moscow, Bangkok""")

MORE = split("""about, above, across, after, again, air, almost, alone, along, always, among, angle, answer, apple pie
area, arrow, autumn, baby, balance, basket, beach, bell, below, between, bird, blanket, bottle, bottom, bowl, box
branch, brave, bread, breakfast, bridge, bright, broom, brother, brush, bucket, button, cable, calm, camera, candle
card, carpet, cave, chain, change, cheap, child, choose, circle, city, clean, clever, climb, clock, cloud, coast
coin, cold, corner, cotton, count, country, cousin, cream, cup, curtain, dance, danger, dark, daughter, day, deep
desert, dinner, dish, door, dream, dust, early, earth, easy, edge, eight, empty, engine, evening, every, example
face, family, farm, fast, father, feather, fence, field, fire, flag, flame, floor, flour, fly, forest, fork, four
free, fresh, friend, front, game, garden, gate, gentle, giant, gift, glass, glue, good, grain, grass, great, ground
group, hair, half, happy, harbour, hard, harvest, heat, heavy, hello, help, hidden, hill, holiday, home, hope, hot
hotel, hour, hungry, idea, inside, island, ivory, jewel, join, journey, jump, kettle, key, kind, king, kitchen, knife
knight, ladder, lake, language, large, laugh, law, leaf, learn, leather, left, letter, level, light, line, listen
little, long, loud, love, lucky, lunch, machine, magic, map, market, match, meadow, medicine, memory, middle, minute
mirror, model, moment, money, moon, morning, mother, mountain, mud, music, name, narrow, nature, needle, neighbour
nest, never, night, noise, north, number, ocean, office, old, open, orange juice, other, oven, owner, page, paint
palace, paper, parent, park, party, path, pattern, peace, people, pepper, photo, picture, piece, pillow, pipe, planet
plant, plate, play, pocket, poem, point, pond, poor, power, present, price, prince, princess, promise, proud, puzzle
quarter, queen, question, quick, quiet, race, rainbow, read, ready, recipe, remember, rice, rich, right, ring, river
road, roof, room, root, rope, rough, round, rule, sail, salt, sand, school, science, season, second, secret, seed
seven, shadow, shallow, share, sharp, shelter, shine, shop, short, shout, silence, simple, sing, sister, sky, sleep
slow, small, smart, smile, smoke, smooth, soap, soft, soil, song, sound, south, space, spark, speak, spoon, square
stable, stairs, station, steam, stone, story, straight, street, strong, student, sugar, summer, surprise, sweet, table
tail, tall, teacher, temple, tent, thick, thin, thing, think, thousand, thread, three, ticket, tide, time, tired
today, tomorrow, tongue, tooth, tower, town, travel, treasure, tunnel, twelve, uncle, under, useful, valley, village
visitor, voice, walk, wall, warm, wash, watch, water, wave, weather, week, west, wheel, window, winter, wise, wish
wonder, wood, wool, word, work, world, yard, year, yellow, yesterday, young, zero, computer, keyboard, program, server
memory, cursor, python, internet, network, random, folder, battery, screen, printer, robot, rocket, library, banana
umbrella, elephant, giraffe, hospital, mystery, alphabet, calendar, chocolate, dictionary, adventure, beautiful
breathe, business, ceiling, definite, different, envelope, favourite, government, height, important, interesting
knowledge, lightning, mississippi, necessary, neighbour, opposite, orchestra, parallel, pneumonia, possible, receive
rhythm, separate, strength, thought, through, together, tomorrow, vegetable, wednesday, weird, xylophone""")

WORDS = sorted({w.lower() for group in list(LISTS.values()) + [MORE, ANIMALS, JOBS] for w in group if " " not in w
                and "-" not in w})
NOUNS = sorted({w for g in (ANIMALS, FRUITS, FOODS, CLOTHES, TOOLS, FURNITURE, VEHICLES, INSTRUMENTS, TOYS, BUILDINGS,
                            TREES, FLOWERS, SCHOOL) for w in g if " " not in w})
ADJECTIVES = split("""small, big, old, young, happy, quiet, brave, clever, kind, tired, hungry, curious, proud, shy
lazy, gentle, grumpy, careful, cheerful, lonely, red, green, blue, white, black, heavy, light, round, soft, warm, cold
bright, dark, new, clean, broken, empty, strange, tiny, huge, lucky, wise""")
VERBS = split("""runs, sleeps, sings, waits, jumps, reads, hides, dances, walks, laughs, listens, works, rests, plays
looks, thinks, swims, eats, writes, travels""")
PLACES = split("""in the garden, by the river, under the table, on the hill, near the old mill, in the forest, at home
at school, in the kitchen, on the roof, behind the house, in the snow, at the market, by the sea, in the dark
next to the window, on the bridge, in the rain, at the station, in the morning""")

ONSETS = split("b, br, bl, c, cl, cr, d, dr, f, fl, fr, g, gl, gr, h, j, k, l, m, n, p, pl, pr, qu, r, s, sh, sk, sl,"
               "sn, sp, st, t, th, tr, v, w, wh, y, z, ch")
VOWELS = split("a, e, i, o, u, ai, ea, ee, oo, ou, ia, io")
CODAS = split("b, ck, d, f, g, l, ll, m, n, nd, ng, nk, nt, p, r, rd, rk, rm, rn, rt, s, ss, st, t, th, x, z, ly, er")


def invent(rng, capital=False):
    """A word that does not exist, 3 to 10 letters."""
    n = rng.choice((1, 2, 2, 2, 3))
    word = "".join(rng.choice(ONSETS) + rng.choice(VOWELS) + (rng.choice(CODAS) if rng.random() < 0.4 else "")
                   for _ in range(n))[:10]
    if len(word) < 3:
        word += rng.choice("aeiou")
    return word.capitalize() if capital else word
